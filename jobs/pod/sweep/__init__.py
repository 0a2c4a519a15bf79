"""The plan of a sweep over a fleet and its decoding: from results to the next round or the faults; no I/O, no clock.

The coordinator in rank 0's pod, the simulation and the report share it: standard library only, Python 3.8 and newer.
"""
