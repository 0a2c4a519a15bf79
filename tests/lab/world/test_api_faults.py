"""API faults: their effects on clients, their configuration, and their repeatability by seed."""

import asyncio
import base64
import collections
import json
import ssl
from dataclasses import replace

import aiohttp
import pytest
import yaml

from lab import Cluster, load
from lab.chaos.api_faults import KINDS, ApiFaults
from lab.scenario import ScenarioError
from tests.table import table
from tests.waiting import HANG_S, seen

GOOD = "name: mine\ntitle: Mine\nbreaks: nothing\nfaults: []\noutcome: go\n"
PODS = "/api/v1/namespaces/kube-system/pods"


class Client:
    """A generic client of a cluster without retries."""

    def __init__(self, cluster):
        config = yaml.safe_load(cluster.kubeconfig)
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self.server = cluster.server
        self.session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority)),
            timeout=aiohttp.ClientTimeout(total=HANG_S),
        )

    async def ask(self, path, method="GET", **more):
        """Return (status, headers, bytes), or the kind of the break."""
        try:
            async with self.session.request(method, self.server + path, **more) as answer:
                return answer.status, answer.headers, await answer.read()
        except aiohttp.ClientError:
            return "broken", {}, b""


def meet(ref, judge, **changed):
    scenario = load(ref)
    scenario = replace(scenario, api_faults=replace(scenario.api_faults, **changed)) if changed else scenario

    async def within():
        async with await Cluster.start(scenario) as cluster:
            client = Client(cluster)
            async with client.session:
                return await judge(cluster, client)

    return asyncio.run(within())


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("healthy?api-faults=storm&seed=7", ("storm", 7)),
        ("healthy?api-faults=slow", ("slow", 0)),
        ("healthy", None),
        ("healthy?weather=slow&seed=2", ("slow", 2)),
    ],
)
def test_a_scenario_is_asked_for_with_its_api_faults(ref, expected):
    """A scenario is started as sim:NAME?api-faults=KIND&seed=N, or with its former name."""
    api_faults = load(ref).api_faults
    assert (api_faults and (api_faults.name, api_faults.seed)) == expected


def test_a_scenario_file_brings_its_own_api_faults(tmp_path):
    """A name, or a kind with its differences; ?seed= changes the seed only."""
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD + "api_faults: {kind: storm, seed: 3, reset: 0.2}\n")
    assert load(str(path)).api_faults == ApiFaults(**{**_fields(KINDS["storm"]), "seed": 3, "reset": 0.2})
    assert (load(f"{path}?seed=5").api_faults.name, load(f"{path}?seed=5").api_faults.seed) == ("storm", 5)
    path.write_text(GOOD + "weather: errors:4\n")  # its former name
    assert (load(str(path)).api_faults.name, load(str(path)).api_faults.seed) == ("errors", 4)


def _fields(api_faults):
    return {name: getattr(api_faults, name) for name in api_faults.__dataclass_fields__}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("strom", "did you mean 'storm'"),
        ("storm:x", "seed must be a whole number"),
        ("{kind: storm, rest: 0.1}", "did you mean 'reset'"),
        ("{kind: storm, reset: 0.9}", "probability of at most 0.5"),
        ("{kind: storm, reset: often}", "must be a number"),
        ("[storm]", "api_faults must be text or a map"),
    ],
)
def test_wrong_api_faults_are_refused_in_one_line(tmp_path, text, message):
    """The nearest name is suggested, as everywhere in a scenario."""
    (tmp_path / "mine.yaml").write_text(GOOD + f"api_faults: {text}\n")
    with pytest.raises(ScenarioError, match=message) as caught:
        load(str(tmp_path / "mine.yaml"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("query", ["api-faults=strom", "api-faults=storm&sed=1", "api-faults=storm&seed=one", "seed=1"])
def test_a_wrong_question_is_refused(query):
    """An invalid query is refused, also after a scenario's name."""
    with pytest.raises(ScenarioError):
        load(f"healthy?{query}")


async def _forecast(_, client, times=60):
    """Return the fault of the n-th request of a kind, for two kinds requested alternately."""
    answers = []
    for _ in range(times):
        for path in (PODS, "/api/v1/nodes"):
            status, headers, body = await client.ask(path)
            answers.append((status, headers.get("Retry-After"), len(body)))
    return answers


@pytest.mark.slow
def test_the_same_seed_brings_the_same_faults():
    """Faults are repeatable for a client with the same request order; another seed brings other faults."""
    first, second, other = (meet(f"healthy?api-faults=storm&seed={seed}", _forecast) for seed in (7, 7, 8))
    assert [each[:2] for each in first] == [each[:2] for each in second]  # not the sizes, since lists contain times
    assert [each[0] for each in first] != [each[0] for each in other]
    assert collections.Counter(each[0] for each in first)[200] > 60  # most requests succeed


def test_refusals_are_those_of_an_api_server():
    """429 has a retry time, in the header and in the Status; 500 and 503 are Status objects; none occurs three times in
    a row."""

    async def judge(_, client):
        statuses, row = [], 0
        for _ in range(150):
            status, headers, body = await client.ask("/api/v1/nodes")
            row = 0 if status == 200 else row + 1
            assert row <= 2
            if status != 200:
                status_object = json.loads(body)
                assert (status_object["kind"], status_object["code"]) == ("Status", status)
                statuses.append(status)
                if status == 429:
                    assert headers["Retry-After"] == "1" and status_object["details"]["retryAfterSeconds"] == 1
        return set(statuses)

    assert meet("healthy?api-faults=throttled&seed=1", judge) == {429}
    assert meet("healthy?api-faults=errors&seed=1", judge) == {500, 503}


def test_a_lost_answer_may_hide_a_deed():
    """Half of the broken writes were executed: a client that repeats them gets 409."""

    async def judge(cluster, client):
        broken = done = 0
        for number in range(80):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
            status, *_ = await client.ask("/api/v1/namespaces/default/configmaps", "POST", json=body)
            if status == "broken":
                broken += 1
                done += cluster.store.get("configmaps", "default", f"c{number}") is not None
        return broken, done

    broken, done = meet("healthy?api-faults=resets&seed=2", judge)
    assert 0 < done < broken


def test_stale_lists_show_a_state_that_was():
    """A stale list is an older snapshot with its own resourceVersion, never one from before the world existed."""

    async def judge(cluster, client):
        versions, names = [], []
        for number in range(40):
            cluster.store.create("configmaps", {"metadata": {"name": f"c{number}"}}, "default")
            _, _, body = await client.ask("/api/v1/namespaces/default/configmaps")
            listed = json.loads(body)
            versions.append(cluster.store.revision - int(listed["metadata"]["resourceVersion"]))
            names.append(number - sum(item["metadata"]["name"].startswith("c") for item in listed["items"]) + 1)
            _, _, body = await client.ask("/api/v1/nodes")
            assert len(json.loads(body)["items"]) == 2
        return versions, names

    versions, behind = meet("healthy?api-faults=stale&seed=1", judge)
    assert 0 in behind and 0 < max(behind) <= 9
    assert all((old > 0) >= (late > 0) for old, late in zip(versions, behind, strict=True))


def test_watches_end_early_or_are_too_old():
    """A watch ends cleanly long before its time, or with ERROR and 410 Expired."""

    async def judge(cluster, client):
        path = f"{PODS}?watch=1&timeoutSeconds={2 * HANG_S:.0f}&resourceVersion={cluster.store.revision}"
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(client.ask(path)) for _ in range(12)]
            await seen(lambda: {bool(body) for body in said(watches)} == {True, False}, "both ends")
            for watch in watches:
                watch.cancel()
        return said(watches)

    def said(watches):
        return [watch.result()[2] for watch in watches if watch.done() and not watch.cancelled()]

    gone = [json.loads(body) for body in meet("healthy?api-faults=short-watches&seed=1", judge) if body]
    assert {(event["type"], event["object"]["code"], event["object"]["reason"]) for event in gone} == {
        ("ERROR", 410, "Expired")
    }


def test_bodies_end_in_the_middle():
    """Some break, some look complete but are not JSON; a client that retries gets the whole body."""

    async def judge(_, client):
        counts = collections.Counter()
        for _ in range(80):
            status, _, body = await client.ask("/api/v1/nodes")
            try:
                counts[len(json.loads(body)["items"]) if status == 200 else status] += 1
            except ValueError:
                counts["torn"] += 1
        return counts

    counts = meet("healthy?api-faults=cut-bodies&seed=1", judge)
    assert counts[2] > 50 and counts["torn"] > 0 and counts["broken"] > 0


async def _watch_arrivals(cluster, client):
    """Return the events of watches on ten ConfigMaps during their creation, in order of arrival, with the times."""
    path = f"/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=300&resourceVersion={cluster.store.revision}"
    loop = asyncio.get_running_loop()
    arrivals, made, opened = [], {}, asyncio.Event()

    async def listen():
        async with client.session.get(client.server + path) as answer:
            opened.set()
            async for line in answer.content:
                arrivals.append((json.loads(line)["object"]["metadata"]["name"], loop.time()))

    listener = asyncio.create_task(listen())
    await opened.wait()
    for number in range(10):
        cluster.store.create("configmaps", {"metadata": {"name": f"c{number}"}}, "default")
        made[f"c{number}"] = loop.time()
        await asyncio.sleep(0.05)
    await seen(lambda: {name for name, _ in arrivals} == set(made), "all of them")
    await asyncio.sleep(cluster.scenario.api_faults.late_s)  # repeated events are sent before that
    cluster.store.create("configmaps", {"metadata": {"name": "last"}}, "default")
    await seen(lambda: "last" in {name for name, _ in arrivals}, "the later object")
    listener.cancel()
    told = [(name, came) for name, came in arrivals if name != "last"]
    return [name for name, _ in told], {name: came - made[name] for name, came in told}


@pytest.mark.parametrize(
    ("api_faults", "twice", "disordered"),
    [
        ("repeated-events", True, None),
        ("late-events", False, True),
        ("lagging-watches", False, False),
        ("calm", False, False),
    ],
)
def test_events_come_twice_late_or_after_others_but_they_come(api_faults, twice, disordered):
    """Every event reaches the watch before it ends."""
    names, _ = meet(f"healthy?api-faults={api_faults}&seed=3", _watch_arrivals, late_s=0.5)
    assert set(names) == {f"c{number}" for number in range(10)}
    assert (len(names) > 10) == twice
    assert disordered is None or (names != sorted(names)) == disordered


def test_a_watch_that_lags_keeps_its_order():
    """A watch lags by a part of its `late_s`, repeatedly."""
    _, late = meet("healthy?api-faults=lagging-watches&seed=2", _watch_arrivals, late_s=0.5)
    assert max(late.values()) > 0.1


def test_health_is_spared():
    """Readiness checks of the server must not fail."""

    async def judge(_, client):
        return {(await client.ask(path))[0] for path in ("/readyz", "/livez", "/healthz") for _ in range(40)}

    assert meet("healthy?api-faults=storm&seed=1", judge) == {200}


def test_slow_answers_are_whole():
    """Latency and slow sending change the time, never the content."""

    async def judge(_, client):
        bodies = [(await client.ask("/api/v1/nodes"))[2] for _ in range(20)]
        return [len(json.loads(body)["items"]) for body in bodies]

    assert meet("healthy?api-faults=slow&seed=3", judge) == [2] * 20


@table("name", sorted(KINDS))
def test_no_api_faults_close_all_ways(name):
    """A client survives each kind: the probabilities are limited, and every series of refusals ends."""
    api_faults = KINDS[name]
    assert api_faults.name == name
    assert all(getattr(api_faults, chance) <= 0.5 for chance in ("throttle", "error", "reset", "watch_gone", "stale"))
    assert api_faults.patience <= 2
