"""How the work of a function grows with its input, counted in Python's own steps and never by a clock."""

import sys
from collections.abc import Callable


def steps(function: Callable[[], object]) -> int:
    """Call a function and return how many of Python's instructions it took; what C does inside one is not counted."""
    count, before = 0, sys.gettrace()

    def tracer(frame, event, _):
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return tracer

    sys.settrace(tracer)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def growth(make: Callable[[int], Callable[[], object]], size: int = 100) -> float:
    """Return how many times as many steps a function takes for twice the input: 2 where it is linear, 4 for a square.

    ``make``: returns the function for a size.
    """
    make(2 * size)()  # what is made once, and kept
    return steps(make(2 * size)) / steps(make(size))


LINEAR = 2.3
"""At most, of an input twice as large: sorting takes a little more than twice as long."""
