"""Facts of the cluster: reads only, without judgement."""
