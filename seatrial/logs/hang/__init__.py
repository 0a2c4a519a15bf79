"""Readers of a hung job's evidence, and one judgement over all of it.

``collect`` finds evidence in files, and ``flight_recorder``, ``ras``, ``inspector`` and ``watchdog`` read it, one per
format, into the types of ``model``. ``split_jobs`` separates jobs. ``prepare`` gives one job's evidence one meaning,
``decide`` lists the rules over it (``dumps``, ``counts``, ``reports``), and ``document`` writes the decision.
"""
