"""Acceptance tests for GPU Kubernetes clusters. Modules of this folder have the same names in a wheel."""
