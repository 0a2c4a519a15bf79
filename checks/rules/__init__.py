"""The pure rules behind the checks: facts in, findings out; nothing here talks to a cluster."""
