"""The API client: connections, responses, errors."""
