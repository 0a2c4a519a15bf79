"""What is an object of this cluster, and what may be in it? Kinds, selectors, quantities, defaults, validation.

Nothing here knows HTTP or the store: functions take plain dicts and return plain dicts or errors.
"""
