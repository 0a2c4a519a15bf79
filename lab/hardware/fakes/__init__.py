"""Fakes of the programs that need hardware which the embedded cluster does not have.

Each module is one executable on a pod's PATH (or a part of one): `nvidia_smi`, `ibv_devinfo`, `ibstat`, `torchrun`.
They read `/run/sim/node.json` (the hardware of this pod, and its behaviour) and their environment, as the real programs
read the driver. They do not depend on the caller. Only the standard library is used: a pod has nothing else, and a fake
starts in a few milliseconds.
"""
