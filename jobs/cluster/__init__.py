"""The cluster: its API client, facts read from it, clean-up, redaction."""
