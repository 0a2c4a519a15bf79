"""The NetworkAttachmentDefinitions that pods can be attached to, those that somebody names.

Each is asked for by name: a tenant may read those of its own namespace without seeing anybody else's. A network without
a namespace is a Network of Google's clusters.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..client.errors import Forbidden, NotFound, Unauthorized
from ..client.kube import Kube, path
from ..redact import safe
from ..unstructured import Unstructured

GROUP, VERSION, RESOURCE = "k8s.cni.cncf.io", "v1", "network-attachment-definitions"
GKE_GROUP, GKE_RESOURCE = "networking.gke.io", "networks"
"""cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods"""

Definitions = dict[tuple[str, str], Unstructured | None]


def definitions(kube: Kube, names: Iterable[tuple[str, str]], *, tenant: bool = False) -> tuple[Definitions, str]:
    """Return each definition by (namespace, name), None where there is none; and why none can be seen, if so."""
    definitions_by_name: Definitions = {}
    names = list(names)
    if tenant and any(not namespace for namespace, _ in names):
        return {}, f"{GKE_RESOURCE} of the cluster are not a tenant's to ask"
    for namespace, name in sorted(names):
        place = path(RESOURCE, name, namespace=namespace, group=GROUP, version=VERSION)
        try:
            item = kube.get(place if namespace else path(GKE_RESOURCE, name, group=GKE_GROUP))
        except NotFound:
            definitions_by_name[namespace, name] = None
        except (Forbidden, Unauthorized) as error:
            return {}, safe(error.message, 300)
        else:
            definitions_by_name[namespace, name] = item if isinstance(item, dict) else None
    return definitions_by_name, ""
