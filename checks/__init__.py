"""Judges: one pytest case per property of the cluster."""
