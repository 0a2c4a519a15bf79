"""What does the cluster say? Reads only, each as facts without judgement."""
