"""Scheduled runs: cron, and the history of each node."""
