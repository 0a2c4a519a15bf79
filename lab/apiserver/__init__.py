"""How do clients reach the store? The HTTPS front: authentication, authorization, verbs, watches."""

from .server import Server, serve

__all__ = ["Server", "serve"]
