"""Bytes become lines: prefixes, what pages did to a line, what was read before, what may be shown."""
