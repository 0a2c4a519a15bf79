"""Facts about the cluster, read without judgement."""
