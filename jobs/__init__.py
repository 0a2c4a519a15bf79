"""What touches the cluster and the logs: the API client, the launchers, the probe, the NCCL log analyzer."""
