"""Kinds, selectors, quantities, defaults, validation.

Independent of HTTP and the store: functions take plain dicts and return plain dicts or errors.
"""
