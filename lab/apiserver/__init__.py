"""The HTTPS front of the store: authentication, authorization, verbs, watches."""

from .server import Server, serve

__all__ = ["Server", "serve"]
