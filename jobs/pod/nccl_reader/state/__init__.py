"""What was seen so far? Bounded, JSON-able, and mergeable across pods and files."""
