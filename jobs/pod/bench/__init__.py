"""The bench: collectives of torch.distributed, timed and verified, printed in the table format of nccl-tests.

Runs in any image that has torch; it needs no sshd, mpirun or operator.
"""
