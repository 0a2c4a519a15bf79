"""The trial: a frozen spec, and the manifests built from it."""
