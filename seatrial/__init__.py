"""Acceptance tests for GPU Kubernetes clusters. What lies here in a clone has the same name in a wheel."""
