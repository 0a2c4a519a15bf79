"""Running a trial: creation, waiting, watching, logs, evidence."""
