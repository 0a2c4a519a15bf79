"""Readers of a hung job's evidence, and one judgement over all of it.

``model`` holds the types; ``flight_recorder``, ``ras``, ``inspector`` and ``watchdog`` fill them, one per format;
``waits`` finds who waits for whom; ``counts`` compares what RAS counted, ``smaller`` where none has all ranks,
and ``departed`` who left one; ``decide`` says which kind of hang it is; ``sentences`` and ``document`` write it down.
"""
