"""The fault catalogue: the knowledge about faults, as data."""
