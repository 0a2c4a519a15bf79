"""Requirement lists: the ids of public lists and of a site's own ones, and a run's results for each."""
