"""The storage stage: written, read, seen by the other node, measured, and removed again."""

from __future__ import annotations

import http.server
import json
import threading
from typing import TYPE_CHECKING

import pytest

from jobs.pod.stages import objects, storage
from jobs.pod.stages.deadline import Watch
from jobs.trial.parts import PRESETS
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def wants(path: Path, **changes) -> dict:
    entry = {"name": "ckpt", "path": str(path), "kind": "claim", "shared": True, "write": True, "bytes": 1 << 20}
    return dict(entry, **changes)


def section(*paths: dict, burst: int = 0, s3: tuple = ()) -> dict:
    return {"paths": list(paths), "s3": list(s3), "burst_bytes": burst}


def test_files_and_credentials_are_looked_for_and_not_read(pods, tmp_path: Path) -> None:
    """An existing file, a missing one and a folder are reported; a token's value is in no line of the evidence."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "shard-0.tar").write_bytes(b"x")
    (tmp_path / "train" / "shard-2.tar").touch()
    (tmp_path / "unmounted").mkdir()
    named = ["train/shard-0.tar", "train", "train/shard-1.tar", "train/shard-2.tar", "unmounted"]
    asked = section(wants(tmp_path, write=False, shared=False, files=named))
    asked["credentials"] = [{"env": name, "secret": "hf", "key": "token"} for name in ("HF_TOKEN", "WANDB_API_KEY")]
    pods.trial.update(storage=asked, collectives=[])
    for stages in pods.run(SEATRIAL_CREDENTIAL_0="hf_secretvalue1234", WANDB_API_KEY="of the image").values():
        (path,) = stages["storage"]["paths"]
        assert (path["files_tried"], path["files_bad"], path["files_empty"]) == (5, 1, 2)
        assert path["files_empty_named"] == ["train/shard-2.tar", "unmounted"]
        assert path["files_bad_named"] == ["train/shard-1.tar: No such file or directory"]
        assert [each["present"] for each in stages["storage"]["credentials"]] == [True, False]
        assert "secretvalue" not in str(stages)


def left(path: Path) -> list[str]:
    return [str(entry) for entry in path.rglob("*") if entry.name.startswith(".seatrial-")]


def test_two_ranks_write_read_and_see_each_other(pods, tmp_path: Path) -> None:
    """In one shared folder every step succeeds on both ranks, a burst of all ranks is measured, and no file is left."""
    place = tmp_path / "shared"
    place.mkdir()
    pods.trial.update(storage=section(wants(place), burst=1 << 20), collectives=[])
    for stage in (stages["storage"] for stages in pods.run().values()):
        (path,) = stage["paths"]
        assert (path["exists"], path["writable"], path["rename_ok"], path["read_back_ok"]) == (True, True, True, True)
        assert (path["peer_file_ok"], path["peer_rename_ok"], path["error"]) == (True, True, None)
        assert path["write_mb_s"] > 0
        assert path["fsync_s"] >= 0
        assert (stage["burst"]["bytes"], stage["burst"]["writers"]) == (2 << 20, 2)
        assert stage["burst"]["error"] is None
    assert left(place) == []


def test_a_folder_of_each_node_is_not_shared(pods, tmp_path: Path) -> None:
    """Each node sees its own folder under the same path: the peer's file never appears, which is reported."""
    places = [tmp_path / f"node{rank}" for rank in (0, 1)]
    for place in places:
        place.mkdir()
    link = tmp_path / "mount"
    stage = pods.here / "stages" / "storage.py"  # the path differs by rank here, as a mount does by node
    stage.write_text(
        stage.read_text()
        .replace("VISIBLE_S = 10.0", "VISIBLE_S = 0.5")
        .replace(
            'path = asked["path"]\n',
            'path = asked["path"] = "%s/node%d" % (os.path.dirname(asked["path"]), self.me.rank)\n',
            1,
        )
    )
    pods.trial.update(storage=section(wants(link)), collectives=[])
    for path in (stages["storage"]["paths"][0] for stages in pods.run().values()):
        assert (path["read_back_ok"], path["peer_file_ok"], path["peer_rename_ok"]) == (True, False, None)
    assert left(tmp_path) == []


def test_a_file_that_the_other_node_sees_cut_is_not_shared(pods, tmp_path: Path) -> None:
    """A caching file system shows a name before its content: a partial file does not count."""
    stage = pods.here / "stages" / "storage.py"
    stage.write_text(
        stage.read_text().replace(
            'result["read_mb_s"] = rate(size, time.monotonic() - began)\n',
            'result["read_mb_s"] = rate(size, time.monotonic() - began)\n        os.truncate(whole, self.me.rank * size)\n',
            1,
        )
    )
    pods.trial.update(storage=section(wants(tmp_path)), collectives=[])
    path_of = {rank: stages["storage"]["paths"][0] for rank, stages in pods.run().items()}
    assert (path_of[1]["peer_file_ok"], path_of[0]["peer_file_ok"]) == (False, True)
    assert path_of[1]["peer_seconds"] is not None


def test_what_is_missing_or_refuses_is_said_and_the_rest_goes_on(pods, tmp_path: Path) -> None:
    """A missing path and a read-only data set: errors with a text, and the collectives still run."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "part-0").write_bytes(b"x" * 100_000)
    pods.trial.update(
        storage=section(
            wants(tmp_path / "nowhere", name="results"), wants(data, name="data", write=False, shared=False)
        )
    )
    stages_of = pods.run()
    results, dataset = stages_of[0]["storage"]["paths"]
    assert (results["exists"], results["errno"], results["peer_file_ok"]) == (False, "ENOENT", None)
    assert (dataset["exists"], dataset["entries"], dataset["writable"]) == (True, 1, None)
    assert dataset["read_mb_s"] > 0
    assert stages_of[0]["collective.ring"]["exit"] == 0


def test_a_pod_that_is_asked_to_stop_leaves_nothing(pods, tmp_path: Path) -> None:
    """After SIGTERM while a rank writes, the evidence so far is printed, and its folder is removed."""
    place = tmp_path / "shared"
    place.mkdir()
    stage = pods.here / "stages" / "storage.py"
    stage.write_text(stage.read_text().replace("os.fsync(descriptor)", "time.sleep(6000)"))
    pods.trial.update(storage=section(wants(place, bytes=1 << 16)), collectives=[], nodes=1, peers=["127.0.0.1"])
    process = pods.start(0)
    until(lambda: left(place), "its folder")
    process.terminate()
    pods.stages(0, code=143)
    assert left(place) == []


def test_never_more_than_a_twentieth_of_the_free_space() -> None:
    """All writers together stay below 5 % of the free space, whatever the profile requests."""
    stage = storage.Storage.__new__(storage.Storage)
    assert stage.bounded(1 << 40, 1000 << 20, 2) == (25 << 20)
    assert stage.bounded(1 << 20, 1 << 40, 2) == 1 << 20
    assert stage.bounded(1 << 20, 0, 2) == 0


def test_the_mount_that_holds_a_path_is_found(tmp_path: Path) -> None:
    """The longest mount point wins; spaces are escaped; ro is a separate option."""
    table = tmp_path / "mounts"
    table.write_text(f"/dev/sda / ext4 rw,errors=remount-ro 0 0\nnas:/x {tmp_path} nfs4 ro,vers=4.2 0 0\n")
    assert storage.mounted(str(tmp_path / "a"), str(table))[1:4] == ["nfs4", "nas:/x", True]
    assert storage.mounted("/etc", str(table)) == ["/", "ext4", "/dev/sda", False, []]


def test_a_changed_byte_is_seen(tmp_path: Path) -> None:
    """Reading back compares every byte, across chunks."""
    watch = Watch(60, 1)
    path = tmp_path / "f"
    storage.written(str(path), storage.CHUNK + 12345, "run/0", watch)
    assert storage.same(str(path), storage.CHUNK + 12345, "run/0", watch)
    assert not storage.same(str(path), storage.CHUNK + 12345, "run/1", watch)
    assert not storage.same(str(path), storage.CHUNK, "run/0", watch)
    with path.open("r+b") as stream:
        stream.seek(storage.CHUNK + 7)
        byte = stream.read(1)
        stream.seek(-1, 1)
        stream.write(bytes([byte[0] ^ 1]))
    assert not storage.same(str(path), storage.CHUNK + 12345, "run/0", watch)


class Bucket(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response({"/mine": 200, "/theirs": 403}.get(self.path, 404))
        self.send_header("x-amz-bucket-region", "eu-1")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint():
    server = http.server.HTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("bucket", "status"), [("mine", 200), ("theirs", 403), ("none", 404)])
def test_a_bucket_is_reached_without_credentials(endpoint: str, bucket: str, status: int, monkeypatch) -> None:
    """Any response below 500 means reached, and is reported; credentials are judged by presence only."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    bucket_asked = {"uri": f"s3://{bucket}/prefix", "endpoint": endpoint, "env": ["A", "B"]}
    bucket_facts = objects.reach(bucket_asked, {"A": "very-secret"}, Watch(60, 1))
    assert (bucket_facts["reachable"], bucket_facts["status"], bucket_facts["region"], bucket_facts["error"]) == (
        True,
        status,
        "eu-1",
        None,
    )
    assert (bucket_facts["can_sign"], bucket_facts["missing"]) == (False, ["B"])
    assert "very-secret" not in str(bucket_facts)


def test_an_endpoint_that_is_not_there_is_said(monkeypatch) -> None:
    """The reason is "refused" or "not resolved", without credentials in it."""
    monkeypatch.setattr(objects, "PATIENCE_S", 0.0)
    bucket_facts = objects.reach({"uri": "s3://b", "endpoint": "http://127.0.0.1:9", "env": []}, {}, Watch(60, 1))
    assert (bucket_facts["reachable"], bucket_facts["status"]) == (False, None)
    assert bucket_facts["error"]


def test_what_represents_keys_counts(tmp_path: Path) -> None:
    """A web identity or an agent of the platform is equivalent to keys; a missing token file is not."""
    token = tmp_path / "token"
    key = ["AWS_ACCESS_KEY_ID"]
    assert not objects.can_sign(key, {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token)})
    token.touch()
    assert objects.can_sign(key, {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token)})
    assert objects.can_sign(key, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23"})
    assert not objects.can_sign(["ACCESS_KEY"], {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23"})
    assert objects.can_sign([], {})
    assert objects.url_of("s3://b/x", "") == "https://b.s3.amazonaws.com/"


def test_variables_that_name_the_bucket_are_looked_for_and_not_read() -> None:
    """Without a uri nothing is requested: the value of S3_BUCKET_NAME stays in the pod."""
    asked = {"uri": "", "endpoint": "", "env": list(PRESETS["tao"])}
    env = dict.fromkeys(PRESETS["tao"], "never-shown")
    found = objects.reach(asked, env, Watch(60, 1))
    assert (found["can_sign"], found["missing"], found["reachable"]) == (True, [], None)
    assert "never-shown" not in json.dumps(found)
    del env["S3_ENDPOINT_URL"]
    found = objects.reach(asked, {**env, "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x"}, Watch(60, 1))
    assert (found["can_sign"], found["missing"]) == (False, ["S3_ENDPOINT_URL"])
