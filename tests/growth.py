"""The growth of a function's work with its input, counted in Python's own steps and never by a clock."""

import sys
from collections.abc import Callable


def steps(function: Callable[[], object]) -> int:
    """Call a function and return the number of its Python instructions; work inside C is not counted."""
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
    """Return the factor of steps for twice the input: 2 if linear, 4 if quadratic.

    ``make``: returns the function for a size.
    """
    make(2 * size)()  # fills caches
    return steps(make(2 * size)) / steps(make(size))


LINEAR = 2.3
"""The maximum for twice the input: sorting takes slightly more than twice as long."""
