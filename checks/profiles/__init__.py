"""Profiles: what a cluster of a kind must offer."""
