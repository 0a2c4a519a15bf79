"""The checks: one pytest case per required property of the cluster."""
