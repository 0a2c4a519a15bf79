"""NCCL's own messages and those of others, as facts about a process or a communicator."""
