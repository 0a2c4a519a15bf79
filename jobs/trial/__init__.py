"""The trial: a frozen spec, and the manifests that are built of it."""
