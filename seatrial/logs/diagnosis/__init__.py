"""Facts of a job become faults with causes, a verdict and a sentence."""
