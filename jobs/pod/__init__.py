"""The programs of the trial's pods.

The probe, its stages, the bench, the sweep's planner and the reader of NCCL's logs.

The code in this folder runs inside a foreign container image: standard library only, Python 3.8 and newer, no
import from the rest of the suite. jobs/trial/payload.py packs it.
"""
