"""The kubelets: pods that are bound to a node become processes, and report.

`Kubelet(store, network, images, hardware).start()` runs all simulated nodes.
"""

from __future__ import annotations

from .kubelet import Kubelet
from .seams import Hardware, ImageMissing, Images

__all__ = ["Hardware", "ImageMissing", "Images", "Kubelet"]
