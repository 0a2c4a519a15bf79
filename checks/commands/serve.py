"""What may Prometheus scrape? ``seatrial serve`` answers /metrics from the newest record that runs left in a folder."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, NoReturn

from checks.command_line import USAGE, Parser
from reports.record import RecordError, ended, read_json, succeeded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import Metric

DESCRIPTION = """\
Serve the metrics of the newest run below DIR (report.json, or DIR/*/report.json), read anew at every scrape. A folder
without a record, or with a damaged one, answers with seatrial_record_readable 0 and nothing else."""
PORT = 9464


def parser() -> Parser:
    """The options of ``seatrial serve``."""
    made = Parser(prog="seatrial serve", description=DESCRIPTION, allow_abbrev=False)
    made.add_argument("folder", metavar="DIR", type=Path, help="where runs write (--out DIR, or --out DIR/NAME)")
    made.add_argument("--listen", metavar="ADDRESS", default="127.0.0.1", help="default: 127.0.0.1; in a pod 0.0.0.0")
    made.add_argument("--port", metavar="PORT", type=int, default=PORT, help=f"default: {PORT}; 0 takes a free one")
    return made


class Newest:
    """A collector that reads the newest record when it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[tuple[Path, float, int], Known] = {}

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the newest record, and whether it could be read."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

        from reports.metrics import registry  # noqa: PLC0415

        readable = GaugeMetricFamily("seatrial_record_readable", "1 where the newest record could be read.")
        try:
            newest, last_success = self._read()
        except RecordError as error:
            print(f"seatrial serve: {error}", file=sys.stderr)
            readable.add_metric([], 0)
            yield readable
            return
        readable.add_metric([], 1)
        yield readable
        yield from registry(newest, last_success=last_success).collect()

    def _read(self) -> tuple[dict[str, Any], float | None]:
        """Return the newest record and when the last success ended. Raises RecordError where the newest is damaged."""
        found = list(self._records())
        newest = max((k for k in found if k.error is None), key=lambda k: (k.ended, k.stamp), default=None)
        for known in found:  # an older record must not speak for a newer one that cannot be read
            if known.error is not None and (newest is None or known.stamp >= newest.stamp):
                raise known.error
        if newest is None:
            raise RecordError(f"{self.folder} holds no record yet")
        return read_json(newest.place), max((k.success for k in found if k.success), default=None)

    def _records(self) -> Iterator[Known]:
        """Yield what is known of each record; one that did not change is not read again at every scrape."""
        known: dict[tuple[Path, float, int], Known] = {}
        for place in (self.folder / "report.json", *sorted(self.folder.glob("*/report.json"))):
            try:
                about = place.stat()
            except OSError:
                continue  # deleted by a run that forgets its oldest ones
            if not S_ISREG(about.st_mode):
                continue
            key = (place, about.st_mtime, about.st_size)
            known[key] = self._known.get(key) or Known.read(place, about.st_mtime)
            yield known[key]
        self._known = known


@dataclass(frozen=True, slots=True)
class Known:
    """A record in short: when it was written, when its run ended, and whether that was a success."""

    place: Path
    stamp: float
    ended: float = 0.0
    success: float | None = None
    error: RecordError | None = None

    @classmethod
    def read(cls, place: Path, stamp: float) -> Known:
        """Read a record; one that cannot be read is known as such."""
        try:
            record = read_json(place)
        except RecordError as error:
            return cls(place, stamp, error=error)
        return cls(place, stamp, ended(record), succeeded(record))


def _stop(*_: object) -> NoReturn:
    """End on SIGTERM: the first process of a container has no default for it, and would be killed after its grace."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Serve until interrupted."""
    options = parser().parse_args(list(arguments))
    if not options.folder.is_dir():
        print(f"seatrial serve: {options.folder} is not a folder", file=sys.stderr)
        return USAGE
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(Newest(options.folder))
    try:
        server, thread = start_http_server(options.port, addr=options.listen, registry=registry)
    except (OSError, OverflowError) as error:
        print(f"seatrial serve: cannot listen on {options.listen}:{options.port}: {error}", file=sys.stderr)
        return USAGE
    signal.signal(signal.SIGTERM, _stop)
    try:
        print(f"http://{options.listen}:{server.server_port}/metrics", flush=True)
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()
    return 0
