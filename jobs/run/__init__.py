"""What happens while a trial runs? Creation, waiting, watching, logs, evidence."""
