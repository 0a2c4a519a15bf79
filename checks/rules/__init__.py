"""The pure rules behind the checks: facts in, findings out, without access to a cluster."""
