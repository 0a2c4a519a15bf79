"""The state so far: bounded, JSON-able, and mergeable across pods and files."""
