"""Image pulls: their events, waiting reasons and back-off.

Available images are already present on the simulated nodes. A pull is only visible if the registry refuses it, if it is
slow, or if the image must always be pulled.
"""

from __future__ import annotations

import asyncio
import inspect
import time

from .pod_context import ContainerContext

AT_ONCE_S = 0.02
"""Maximum seconds of a pull after which the image counts as already present."""
FIRST_BACKOFF_S, MAX_BACKOFF_S = 10, 300
"""imageBackOffPeriod and MaxContainerBackOff of the kubelet."""
SHOWN_S = 2
"""Seconds for which ErrImagePull is shown before ImagePullBackOff: until the kubelet's next sync of the pod."""
IMAGE_BYTES = 184730484


async def pull(container: ContainerContext) -> None:
    """Return when the image is pulled; retry for ever while it is not."""
    spec, worker = container.spec, container.worker
    image, policy = spec["image"], spec.get("imagePullPolicy", "IfNotPresent")
    delay = FIRST_BACKOFF_S
    if policy != "Always" and worker.kubelet.has_image(worker.node, image):
        _present(container, image)
        return
    while True:
        began = time.monotonic()
        why = await _attempt(container, image, announce=policy == "Always")
        if why is None:
            if time.monotonic() - began < AT_ONCE_S and policy != "Always":
                _present(container, image)
                return
            took = f"{(time.monotonic() - began) * 1000:.0f}ms"
            container.event(
                "Normal",
                "Pulled",
                f'Successfully pulled image "{image}" in {took} ({took} including '
                f"waiting). Image size: {IMAGE_BYTES} bytes.",
            )
            return
        if policy == "Never":
            await _never(container, image, delay)
        else:
            await _failed(container, image, why, delay)
            delay = min(delay * 2, MAX_BACKOFF_S)


def _present(container: ContainerContext, image: str) -> None:
    container.event(
        "Normal", "Pulled", f'Container image "{image}" already present on machine and can be accessed by the pod'
    )


async def _attempt(container: ContainerContext, image: str, *, announce: bool) -> str | None:
    """Pull once: return None, or the registry's error; a pull that does not succeed at once has an event."""
    result = None
    try:
        result = container.worker.kubelet.images.pull(image)
        if announce:
            _announce(container, image)
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(result)
            done, _ = await asyncio.wait([task], timeout=AT_ONCE_S)
            if not done and not announce:
                announce = True
                _announce(container, image)
            await task
    except Exception as error:
        if type(error).__name__ != "ImageMissing":
            raise
        if not announce and container.spec.get("imagePullPolicy") != "Never":
            _announce(container, image)
        return str(error)
    return None


def _announce(container: ContainerContext, image: str) -> None:
    container.worker.check_pull_secrets()
    container.event("Normal", "Pulling", f'Pulling image "{image}"')


async def _never(container: ContainerContext, image: str, delay: float) -> None:
    reason = "ErrImageNeverPull"
    message = f'Container image "{image}" is not present with pull policy of Never'
    container.state.wait(reason, message)
    container.event("Warning", reason, message)
    container.event("Warning", "Failed", f"Error: {reason}")
    container.worker.publish()
    await container.worker.pause(delay)


async def _failed(container: ContainerContext, image: str, why: str, delay: float) -> None:
    container.event("Warning", "Failed", f'Failed to pull image "{image}": {why}')
    container.event("Warning", "Failed", "Error: ErrImagePull")
    container.state.wait("ErrImagePull", why)
    container.worker.publish()
    await container.worker.pause(min(delay, SHOWN_S))
    container.event("Normal", "BackOff", f'Back-off pulling image "{image}"')
    container.event("Warning", "Failed", "Error: ImagePullBackOff")
    container.state.wait("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {why}')
    container.worker.publish()
    await container.worker.pause(delay)
