"""Comparison of two runs."""
