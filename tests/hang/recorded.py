"""The recorded hangs, copied, with the original times of their dumps: a clone sets files to its own time."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from seatrial.logs.hang.pickles import loads


def written_at_timeout(folder: Path, later: float = 1.0) -> None:
    """Set a folder's dumps to some seconds after the last operation that they wait for timed out."""
    paths = [path for path in folder.glob("*rank_*") if path.is_file()]
    entries = [entry for path in paths for entry in loads(path.read_bytes())["entries"]]
    waits = [entry for entry in entries if entry["state"] != "completed" and not entry["retired"]] or entries
    when = max((entry["time_created_ns"] / 1e9 + entry["timeout_ms"] / 1e3 for entry in waits), default=0) + later
    for path in paths:
        os.utime(path, (when, when))


def _copied() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hangs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data = Path(shutil.copytree(Path(__file__).parent / "data", folder / "data"))
    for each in {path.parent for path in data.rglob("*rank_*")}:
        written_at_timeout(each)
    return data


DATA = _copied()
