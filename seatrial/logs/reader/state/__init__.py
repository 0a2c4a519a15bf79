"""What was seen so far: bounded, JSON-able, and mergeable across pods and files."""
