"""Requirement lists: the ids of public lists, and of a site's own, and what a run shows of each."""
