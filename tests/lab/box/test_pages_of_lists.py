"""Paged lists contain every object exactly once, for any namespace names and concurrent changes."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from urllib.parse import quote

import pytest
import yaml

from lab.apiserver import serve
from lab.apiserver.store import Store
from tests.waiting import HANG_S


@pytest.fixture
def ask():
    """Run requests to a served store in this thread's loop; yield (store, coroutine function)."""
    store = Store()

    async def get(server, path):
        token = yaml.safe_load(server.kubeconfig)["users"][0]["user"]["token"]
        request = urllib.request.Request(server.url + path, headers={"Authorization": f"Bearer {token}"})
        context = ssl.create_default_context(cadata=server.authority.ca_pem)

        def read():
            with urllib.request.urlopen(request, context=context, timeout=HANG_S) as answer:
                return json.loads(answer.read())

        return await asyncio.to_thread(read)

    def run(talk):
        async def main():
            server = await serve(store)
            try:
                return await talk(lambda path: get(server, path))
            finally:
                await server.stop()

        return asyncio.run(main())

    return store, run


def test_pages_follow_the_keys_of_etcd(ask):
    """`a-b/x` comes before `a/x`; with a page size of one no object is lost or repeated there, also after changes."""
    store, run = ask
    for namespace in ("a", "a-b", "a.b", "b"):
        store.load("namespaces", {"metadata": {"name": namespace}})
        for name in ("x", "y"):
            store.load("configmaps", {"metadata": {"name": name}}, namespace)

    async def talk(get):
        names, token = [], ""
        while True:
            page = await get(f"/api/v1/configmaps?limit=1&continue={quote(token)}")
            names += [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in page["items"]]
            if len(names) == 3:  # the pages keep the first page's revision
                store.delete("configmaps", "b", "y")
                store.load("configmaps", {"metadata": {"name": "new"}}, "b")
            token = page["metadata"].get("continue", "")
            if not token:
                return names

    names = run(talk)
    assert names == ["a-b/x", "a-b/y", "a.b/x", "a.b/y", "a/x", "a/y", "b/x", "b/y"]


def test_a_list_of_many_megabytes_arrives_whole(ask):
    """A long list is written in pieces, with the right length, and again after a change."""
    store, run = ask
    for number in range(300):
        store.load("configmaps", {"metadata": {"name": f"c-{number:03}"}, "data": {"k": "v" * 20_000}}, "default")

    async def talk(get):
        first = await get("/api/v1/configmaps")
        store.delete("configmaps", "default", "c-000")
        return first, await get("/api/v1/configmaps")

    first, second = run(talk)
    assert len(first["items"]) == 300
    assert [item["metadata"]["name"] for item in second["items"]] == [f"c-{number:03}" for number in range(1, 300)]
