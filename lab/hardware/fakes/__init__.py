"""Fakes of the programs that need hardware which the embedded cluster does not have.

Each module is one executable that a pod finds on its PATH (or a part of one): `nvidia_smi`, `ibv_devinfo`, `ibstat`,
`torchrun`. They answer from `/run/sim/node.json` (the hardware that this pod was given, and how it behaves) and from
their environment, as the real programs do from the driver. They know nothing of who asks.
Standard library only: inside a pod there is nothing else, and they start in a few milliseconds.
"""
