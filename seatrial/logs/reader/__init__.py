"""Reads NCCL logs into a small state that merges with others; a trial's pod runs it over its ranks' logs.

    partial = scan.read([("rank0.log", stream), ...])   # bytes in, constant memory
    partial.to_dict(state.partial.POD_BUDGET)           # JSON out

The layers, each a folder that imports only those before it: lines (bytes become clean lines), state (the observations),
tables (a benchmark's measurements), events (the content of a line). digest reduces a block of lines to events, scan
applies them. seatrial/logs judges the state. redact.py has the patterns of credentials for the whole project.

The trial's pods run this folder (jobs/trial/payload.py): standard library only, Python 3.8 and newer.
"""
