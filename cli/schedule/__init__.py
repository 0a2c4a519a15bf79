"""Scheduled runs: cron, what is remembered of each node."""
