"""Execution of a trial: creation, waiting, watching, logs, evidence."""
