"""Profiles: the requirements on a kind of cluster."""
