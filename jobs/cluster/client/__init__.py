"""The API client: its connections, its answers, its errors."""
