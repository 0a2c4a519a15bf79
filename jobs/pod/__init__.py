"""The programs of the trial's pods: the probe, its stages, the bench and the sweep's planner.

This code runs inside a foreign container image: only the standard library, Python 3.8 and newer, and no import of other
packages except the reader of logs. jobs/trial/payload.py packs both.
"""
