"""Renderers: one run record in, one format out."""
