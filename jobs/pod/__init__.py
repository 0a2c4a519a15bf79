"""The programs of the trial's pods: the probe, its stages, the bench and the sweep's planner.

The code in this folder runs inside a foreign container image: standard library only, Python 3.8 and newer, no import
from the rest of the suite but of the reader of logs. jobs/trial/payload.py packs both.
"""
