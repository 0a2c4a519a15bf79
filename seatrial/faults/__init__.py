"""The fault catalogue: what is known of a fault, as data."""
