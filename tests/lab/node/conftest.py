"""Shared fixture of the tests of real pods."""

import asyncio
import contextlib

import pytest

from lab.node.network import Unavailable
from tests.lab.node.running import build


@pytest.fixture
def run(request):
    """Run an async function of a Lab: run(function, mode=..., images=...)."""

    def go(scenario, mode="namespaces", images=None):
        async def inner():
            async with contextlib.AsyncExitStack() as ends:
                lab = await build(mode, ends, images)
                await scenario(lab)

        try:
            asyncio.run(inner())
        except Unavailable as reason:
            pytest.skip(str(reason))

    return go
