"""The bench: collectives of torch.distributed, timed and verified, printed as nccl-tests' table.

Runs in any image that has torch: no sshd, no mpirun, no operator.
"""
