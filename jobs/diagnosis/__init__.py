"""Why a pod or a job did not run, or did not end: conditions, events and refusals as named symptoms."""
