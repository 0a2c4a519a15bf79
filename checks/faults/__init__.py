"""The fault catalogue."""
