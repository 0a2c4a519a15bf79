"""Reads NCCL logs into a small state that merges with others: what a trial's pod runs over its ranks' logs.

    partial = scan.read([("rank0.log", stream), ...])   # bytes in, constant memory
    partial.to_dict(state.partial.POD_BUDGET)           # JSON out

The layers, each a folder that knows only those before it: lines (bytes become clean lines), state (what was seen),
tables (what a benchmark measured), events (what a line says); digest reduces a block of lines to events, scan applies
them. What the state means is judged elsewhere (seatrial/logs). redact.py says what a credential looks like, for the
whole project.

The trial's pods run this folder (jobs/trial/payload.py): standard library only, Python 3.8 and newer.
"""
