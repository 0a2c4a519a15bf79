"""How do clients reach the store? The HTTPS front: authentication, authorization, verbs, watches."""
