"""Access to the cluster: the API client, facts read from the API, redaction of foreign text."""
