"""Why did it not run, or not end? From conditions, events and refusals to named symptoms."""
