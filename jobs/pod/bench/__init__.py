"""How fast, and how correct, are the collectives? A torch.distributed bench that prints nccl-tests' table.

Runs in any image that has torch: no sshd, no mpirun, no operator.
"""
