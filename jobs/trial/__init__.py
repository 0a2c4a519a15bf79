"""What is asked for? A frozen spec, and the manifests that are built of it."""
