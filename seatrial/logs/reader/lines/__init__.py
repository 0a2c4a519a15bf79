"""Bytes become lines: prefixes, repairs of rewritten lines, fast searches, and the text that may be shown."""
