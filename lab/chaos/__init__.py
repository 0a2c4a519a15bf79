"""API fault injection and node events."""
