"""Two ranks test a shared path: locks, renames, attributes and small files, and the leftovers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from jobs.pod.stages import semantics
from tests.waiting import until

from .test_probe_storage import left, section, wants

GOOD = {"held": True, "refused": True, "freed": True, "error": None}
LOCK = {"flock": dict(GOOD, apart=None), "posix": dict(GOOD, apart=True)}

STANDIN = """
import fcntl as real, os, time

class fcntl:
    LOCK_EX, LOCK_NB = real.LOCK_EX, real.LOCK_NB

    @staticmethod
    def flock(descriptor, operation):
        {flock}

    @staticmethod
    def lockf(descriptor, operation, *part):
        {lockf}
"""
TRUE = {"flock": "real.flock(descriptor, operation)", "lockf": "real.lockf(descriptor, operation, *part)"}
SECOND = 'os.environ["JOB_COMPLETION_INDEX"] == "1"'


def patched(pods, *changes: tuple[str, str], file: str = "semantics") -> None:
    """Replace texts of a shipped stage, each exactly once."""
    path = pods.here / "stages" / f"{file}.py"
    text = path.read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text)


def locking(pods, limit_s: float = 10.0, **acts: str) -> None:
    """Make the ranks' file system lock as given by statements."""
    patched(pods, ("import fcntl\n", STANDIN.format(**(TRUE | acts))), ("LOCK_S = 10.0", f"LOCK_S = {limit_s}"))


def found(pods, place: Path, **changes) -> dict[int, dict]:
    """Run two ranks on one folder; return the result of each."""
    place.mkdir(exist_ok=True)
    pods.trial.update(storage=section(wants(place, **changes)), collectives=[])
    return {rank: stages["storage"]["paths"][0] for rank, stages in pods.run().items()}


def locks(path: dict) -> dict:
    """Return the lock results without the seconds."""
    return {kind: {key: value for key, value in path[kind].items() if key != "freed_s"} for kind in LOCK}


def test_a_real_file_system_has_all_that_training_relies_on(pods, tmp_path: Path) -> None:
    """Two processes without simulation show excluding locks, visible changes and counted files, without leftovers."""
    for path in found(pods, tmp_path / "shared").values():
        assert locks(path) == LOCK
        assert path["attributes_ok"] is True
        assert (path["small_files"], path["small_missing"], path["small_bad"]) == (128, 0, 0)
        assert (path["small_read"], path["small_removed"]) == (128, 128)
        assert (path["swap_versions"], path["swap_missing"], path["swap_torn"]) == (20, 0, 0)
        assert (path["semantics_error"], path["error"]) == (None, None)
    assert left(tmp_path) == []


@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_locks_that_only_the_own_node_knows_are_seen(pods, tmp_path: Path, kind: str) -> None:
    """One kind of lock succeeds on both nodes at once; the other excludes, and both results are reported."""
    locking(pods, **{kind: "pass"})
    for path in found(pods, tmp_path / "shared").values():
        bad, good = ("flock", "posix") if kind == "flock" else ("posix", "flock")
        assert (path[bad]["held"], path[bad]["refused"], path[bad]["error"]) == (True, False, None)
        assert locks(path)[good] == LOCK[good]


@pytest.mark.parametrize("code", ["ENOLCK", "ENOSYS", "EOPNOTSUPP", "EIO"])
def test_an_error_of_a_lock_is_reported_and_the_rest_goes_on(pods, tmp_path: Path, code: str) -> None:
    locking(pods, flock=f"raise OSError(errno.{code}, 'no')")
    for path in found(pods, tmp_path / "shared").values():
        assert path["flock"]["held"] is None
        assert path["flock"]["error"] in (code, "ENOTSUP" if code == "EOPNOTSUPP" else code)
        assert locks(path)["posix"] == LOCK["posix"]
        assert (path["swap_versions"], path["small_read"]) == (20, 128)


def test_a_node_without_locks_is_distinguished_from_its_neighbour(pods, tmp_path: Path) -> None:
    """A node's own lock fails; its neighbour's result proves nothing, and both nodes see that."""
    locking(pods, flock=f"if {SECOND}: raise OSError(errno.ENOLCK, 'no')\n        {TRUE['flock']}")
    paths = found(pods, tmp_path / "shared")
    assert (paths[1]["flock"]["held"], paths[1]["flock"]["error"]) == (None, "ENOLCK")
    assert (paths[0]["flock"]["held"], paths[0]["flock"]["refused"]) == (True, False)
    assert locks(paths[0])["posix"] == LOCK["posix"]


def test_a_lock_that_never_answers_is_left_behind(pods, tmp_path: Path) -> None:
    """The stage continues after the limit, and its folder is still removed."""
    locking(pods, limit_s=1.0, flock="time.sleep(6000)")
    for path in found(pods, tmp_path / "shared").values():
        assert path["flock"]["error"] == "no answer in 1 s"
        assert (path["swap_versions"], path["small_read"]) == (20, 128)
    assert left(tmp_path) == []


def test_a_lock_that_stays_after_its_release_is_seen(pods, tmp_path: Path) -> None:
    locking(pods, limit_s=2.0)
    patched(pods, ("for each in held.values()]", "for each in []]"))
    for path in found(pods, tmp_path / "shared").values():
        assert (path["flock"]["refused"], path["flock"]["freed"]) == (True, False)


@pytest.mark.parametrize(
    ("replacing", "odd"),
    [
        (
            "swap = os.path.join(self.mine, 'swap'); os.path.exists(swap) and os.unlink(swap); time.sleep(0.01)",
            "missing",
        ),
        ("swap = os.path.join(self.mine, 'swap'); open(swap, 'w').write('half'); time.sleep(0.01)", "torn"),
    ],
)
def test_a_rename_in_two_steps_is_seen(pods, tmp_path: Path, replacing: str, odd: str) -> None:
    """Removed and copied, or copied over the old one: the reader sees the intermediate state."""
    patched(
        pods,
        (
            '        os.replace(part, os.path.join(self.mine, "swap"))',
            f"        {replacing}\n        os.replace(part, swap)",
        ),
    )
    for path in found(pods, tmp_path / "shared").values():
        assert path[f"swap_{odd}"] > 0
        assert path["swap_versions"] > 1


def test_attributes_of_a_cache_are_seen(pods, tmp_path: Path) -> None:
    """The size that a node saw first remains beyond the limit."""
    patched(pods, ("found = os.fstat(stream.fileno())", "found = CACHE.setdefault(path, os.fstat(stream.fileno()))"))
    patched(pods, ("LINES = 64", "CACHE = {}  # type: ignore\nLINES = 64"))
    patched(pods, ("VISIBLE_S = 10.0", "VISIBLE_S = 0.5"), file="storage")
    for path in found(pods, tmp_path / "shared").values():
        assert (path["attributes_ok"], path["attributes_seen"]) == (False, "size 100, mtime 1000000000")


def test_a_list_that_lacks_files_is_seen(pods, tmp_path: Path) -> None:
    patched(pods, ("names = sorted(os.listdir(folder))", "names = sorted(os.listdir(folder))[3:]"))
    patched(pods, ("VISIBLE_S = 10.0", "VISIBLE_S = 0.5"), file="storage")
    for path in found(pods, tmp_path / "shared").values():
        assert (path["small_missing"], path["small_bad"]) == (3, 0)


def test_a_file_system_that_keeps_no_times_and_appends_nothing_is_not_at_fault(pods, tmp_path: Path) -> None:
    """An object store accepts whole files only: what cannot be tested is not reported."""
    patched(pods, ("os.utime(path, (wanted[1], wanted[1]))", "raise OSError(errno.EPERM, 'no times')"))
    assert {path["attributes_ok"] for path in found(pods, tmp_path / "shared").values()} == {True}


def test_a_partner_that_dies_with_its_locks_is_no_fault_of_them(pods, tmp_path: Path) -> None:
    """A dead partner's kernel releases its locks: a lock granted after that is not measured, and never a pass."""
    ready = tmp_path / "dead"
    patched(
        pods,
        (
            "        self._locks(self._refused)\n",
            f"        if {SECOND}: os.kill(os.getpid(), 9)\n"
            f"        while not os.path.exists({str(ready)!r}): time.sleep(0.05)\n"
            "        self._locks(self._refused)\n",
        ),
    )
    place = tmp_path / "shared"
    place.mkdir()
    pods.trial.update(storage=section(wants(place)), collectives=[])
    pods.start(0)
    pods.start(1)
    until(lambda: pods.processes[1].poll() is not None, "the end of rank 1")
    ready.touch()
    path = pods.stages(0)["storage"]["paths"][0]
    assert [path[kind]["refused"] for kind in LOCK] == [None, None]
    assert (path["peer_rename_ok"], path["swap_versions"], path["small_missing"]) == (None, None, None)


def test_pods_that_are_stopped_while_they_replace_files_leave_nothing(pods, tmp_path: Path) -> None:
    """After SIGTERM on both nodes locks, small files and the replaced file are removed, and no rename is torn."""
    place = tmp_path / "shared"
    place.mkdir()
    patched(pods, ("VERSIONS, PACE_S = 20, 0.01", "VERSIONS, PACE_S = 10**9, 0.01"))
    patched(pods, ("VISIBLE_S = 10.0", "VISIBLE_S = 6000.0"), file="storage")
    pods.trial.update(storage=section(wants(place)), collectives=[])
    for rank in (0, 1):
        pods.start(rank)
    until(lambda: len([*place.glob(".seatrial-*/swap")]) == 2, "both replace")
    for rank in (1, 0):
        pods.processes[rank].send_signal(signal.SIGTERM)
    for rank in (0, 1):
        path = pods.stages(rank, code=143)["storage"]["paths"][0]
        assert not path["swap_missing"]
        assert not path["swap_torn"]
    assert left(place) == []


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    """A file that already existed is not opened, either."""
    target = tmp_path / "passwd"
    target.write_text("root")
    (tmp_path / "flock").symlink_to(target)
    for flags in (0, semantics.os.O_CREAT | semantics.os.O_EXCL):
        facts: dict = {}
        assert semantics.opened(str(tmp_path / "flock"), flags, facts) is None
        assert facts["error"] in ("ELOOP", "EEXIST")
    assert target.read_text() == "root"


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (b"run/1 00000007\n" * 64, 7),
        (b"", None),
        (b"run/1 00000007\n" * 63, None),
        (b"run/1 00000007\n" * 32 + b"run/1 00000008\n" * 32, None),
        (b"run/0 00000007\n" * 64, None),
        (b"\0" * 960, None),
    ],
)
def test_only_a_whole_version_counts(content: bytes, number: int | None) -> None:
    assert semantics.version(content, "run/1") == number
