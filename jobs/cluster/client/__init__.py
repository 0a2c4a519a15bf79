"""How do we speak to an API server? One client, its connections, its errors."""
