"""The API server's end: no socket remains open, whatever its clients do."""

from __future__ import annotations

import asyncio
import gc
import http.client
import ssl
import warnings
from types import SimpleNamespace

import pytest

from lab.apiserver import serve, server
from lab.apiserver.server import Server
from lab.apiserver.store import Store
from tests.waiting import HANG_S


def unclosed(talk) -> list[str]:
    """Run a coroutine function in a separate loop; return the resources left open when the loop ended."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(talk())
        gc.collect()
    return [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)]


def test_a_client_that_stays_connected_keeps_no_socket_of_the_server_open():
    """kubectl and every HTTP library keep connections for their next request."""
    clients = []

    async def talk():
        served = await serve(Store())
        context = ssl.create_default_context(cadata=served.authority.ca_pem)

        def ask() -> int:
            client = http.client.HTTPSConnection(served.url.removeprefix("https://"), context=context, timeout=HANG_S)
            clients.append(client)
            client.request("GET", "/healthz")
            answer = client.getresponse()
            answer.read()
            return answer.status

        assert await asyncio.to_thread(ask) == 200
        await served.stop()

    left = unclosed(talk)
    for client in clients:
        client.close()
    assert left == []


def test_a_server_that_does_not_come_up_gives_its_port_back(monkeypatch):
    """An error after the first listener and a cancelled start release the port."""

    def refuse(*_, **__):
        raise OSError("no second listener")

    monkeypatch.setattr(server.web, "SockSite", refuse)

    async def talk():
        with pytest.raises(OSError, match="no second listener"):
            await serve(Store(), sockets=[None])

    assert unclosed(talk) == []


def test_a_connection_that_has_ended_by_itself_keeps_no_other_open():
    """The ended connection's transport is gone: Python 3.11.2 raises AttributeError if it is closed again."""
    closed = []

    def gone():
        raise AttributeError("'NoneType' object has no attribute '_abort'")

    async def cleanup():
        pass

    connections = [SimpleNamespace(transport=SimpleNamespace(abort=each)) for each in (gone, lambda: closed.append(1))]
    runner = SimpleNamespace(server=SimpleNamespace(connections=connections), cleanup=cleanup)
    asyncio.run(Server("", "", "", None, runner).stop())
    assert closed == [1]
