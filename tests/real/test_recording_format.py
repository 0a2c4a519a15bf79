"""The recording format: written recordings can be read, and invalid ones are refused in one line."""

import gzip
from pathlib import Path

import pytest

from jobs.run import recorder
from tests import recordings

OURS = Path(__file__).parent / "recordings"


def test_what_is_written_is_read_again(tmp_path):
    lines = (
        recorder.Line(0.5, "Pod", "ADDED", {"metadata": {"name": "a", "uid": "1"}}),
        recorder.Line(1.25, "Pod", recorder.WATCH_ENDED, "connection reset"),
        recorder.Line(2.0, recorder.MARK, "DONE", "node drained"),
    )
    with recorder.RecordingWriter(
        tmp_path / "x.jsonl.gz", server="v1.36.2", namespace="team-a", wall="2026-01-01T00:00:00Z"
    ) as out:
        for line in lines:
            out.write(line)
    read_back = recordings.read(tmp_path / "x.jsonl.gz")
    assert (read_back.server, read_back.namespace, read_back.wall, read_back.lines) == (
        "v1.36.2",
        "team-a",
        "2026-01-01T00:00:00Z",
        lines,
    )
    assert [recordings.is_change(line) for line in read_back.lines] == [True, False, False]


def test_a_recording_holds_no_data_of_configmaps_and_of_nodes_only_what_decides():
    config = recorder.small("ConfigMap", {"metadata": {"name": "a", "managedFields": [1]}, "data": {"b": "secret"}})
    assert config == {"metadata": {"name": "a"}, "keys": ["b"]}
    node = {
        "metadata": {"name": "n", "annotations": {"x": "y"}},
        "spec": {"podCIDR": "10.0.0.0/8", "taints": []},
        "status": {"images": [], "allocatable": {"cpu": "2"}},
    }
    assert recorder.small("Node", node) == {
        "metadata": {"name": "n"},
        "spec": {"taints": []},
        "status": {"allocatable": {"cpu": "2"}},
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1: not a JSON object"),
        ('{"server": "v1"}\n[1]', "line 2: not a JSON"),
        ('{"a": 1}\n{"t": "x"}', "line 2: t is no"),
    ],
    ids=["empty", "list", "time"],
)
def test_what_is_no_recording_is_refused_with_its_line(tmp_path, text, complaint):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(recordings.RecordingError, match=complaint):
        recordings.read(path)


def test_a_torn_file_is_refused(tmp_path):
    whole = next(OURS.glob("*.gz")).read_bytes()
    (tmp_path / "x.jsonl.gz").write_bytes(whole[:200])
    with pytest.raises(recordings.RecordingError, match="cannot be read"):
        recordings.read(tmp_path / "x.jsonl.gz")
