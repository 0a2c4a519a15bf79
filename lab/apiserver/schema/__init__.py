"""Kinds, selectors, quantities, defaults, validation.

Nothing here knows HTTP or the store: functions take plain dicts and return plain dicts or errors.
"""
