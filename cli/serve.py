"""``seatrial serve``: serves /metrics from the newest run in a folder.

Scheduled runs write their own metrics there and to a ConfigMap, since they know the bad nodes and the failures that
count only when repeated. Those are served unchanged; for other runs the newest record is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from cli.usage import Parser, refuse
from reports.record import LARGEST, ended, read_json, succeeded
from reports.schema import RecordError

if TYPE_CHECKING:
    from prometheus_client import Metric

DESCRIPTION = """\
Serve the metrics of the newest run below DIR, read at every scrape: those of a scheduled run (DIR/metrics.prom,
or the ConfigMap seatrial-results mounted there), else the newest record (DIR/report.json, DIR/*/report.json). A folder
with neither, or with a damaged one, answers only with seatrial_record_readable 0."""
EXAMPLES = ("seatrial serve /results", "seatrial serve --listen 0.0.0.0 --port 9464 report")
PORT = 9464


def parser() -> Parser:
    """Return the parser of ``seatrial serve``."""
    made = Parser(prog="seatrial serve", description=DESCRIPTION, examples=EXAMPLES)
    made.add_argument("folder", metavar="DIR", type=Path, help="where runs write (--out DIR, or --out DIR/NAME)")
    made.add_argument("--listen", metavar="ADDRESS", default="127.0.0.1", help="default: 127.0.0.1; in a pod 0.0.0.0")
    made.add_argument("--port", metavar="PORT", type=int, default=PORT, help=f"default: {PORT}; 0 takes a free one")
    return made


class Newest:
    """A collector that reads the newest record for each request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[tuple[Path, float, int], KnownRecord] = {}

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the newest record, and whether it could be read."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

        readable = GaugeMetricFamily("seatrial_record_readable", "1 where the newest record could be read.")
        metrics: list[Metric] = []
        try:
            metrics += self._read()
        except RecordError as error:
            print(f"seatrial serve: {error}", file=sys.stderr)
        readable.add_metric([], float(bool(metrics)))
        yield readable
        yield from metrics

    def _read(self) -> Iterable[Metric]:
        """Return the metrics of the newest run. Raises RecordError if they are damaged."""
        from reports.metrics import registry  # noqa: PLC0415

        records = list(self._records())
        newest = max((k for k in records if k.error is None), key=lambda k: (k.ended, k.stamp), default=None)
        scheduled = None if (self.folder / "report.json").exists() else _left_by_a_scheduled_run(self.folder)
        stamp = max(k.stamp for k in (newest, scheduled and scheduled[0], KnownRecord(self.folder, 0.0)) if k)
        for known in records:  # an older record must not replace an unreadable newer one
            if known.error is not None and known.stamp >= stamp:
                raise known.error
        if scheduled and (newest is None or scheduled[0].ended >= newest.ended):
            return scheduled[1]
        if newest is None:
            raise RecordError(f"{self.folder} holds no record yet")
        last_success = max((k.success for k in records if k.success), default=None)
        return registry(read_json(newest.place), last_success=last_success).collect()

    def _records(self) -> Iterator[KnownRecord]:
        """Yield each record; an unchanged one is not read again at every scrape."""
        known: dict[tuple[Path, float, int], KnownRecord] = {}
        for place in (self.folder / "report.json", *sorted(self.folder.glob("*/report.json"))):
            try:
                about = place.stat()
            except OSError:
                continue  # deleted by a run that removes its oldest ones
            if not S_ISREG(about.st_mode):
                continue
            key = (place, about.st_mtime, about.st_size)
            known[key] = self._known.get(key) or KnownRecord.read(place, about.st_mtime)
            yield known[key]
        self._known = known


def _left_by_a_scheduled_run(folder: Path) -> tuple[KnownRecord, list[Metric]] | None:
    """Return the run and its metrics; None if there are none. Raises RecordError."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    place = folder / "metrics.prom"
    try:
        if not place.is_file():
            return None
        with place.open(encoding="utf-8") as file:
            families = list(text_string_to_metric_families(file.read(LARGEST)))
        (ended,) = (s.value for f in families for s in f.samples if s.name == "seatrial_run_timestamp_seconds")
    except (OSError, ValueError) as error:
        raise RecordError(f"{place} is damaged, or holds no metrics of a run") from error
    return KnownRecord(place, place.stat().st_mtime, ended), families


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """The times of a record: when it was written, when its run ended, and when that was a success."""

    place: Path
    stamp: float
    ended: float = 0.0
    success: float | None = None
    error: RecordError | None = None

    @classmethod
    def read(cls, place: Path, stamp: float) -> KnownRecord:
        """Read a record; an unreadable one is marked as such."""
        try:
            record = read_json(place)
        except RecordError as error:
            return cls(place, stamp, error=error)
        return cls(place, stamp, ended(record), succeeded(record))


def main(arguments: Sequence[str]) -> int:
    """Serve until interrupted."""
    options = parser().parse_args(list(arguments))
    if not options.folder.is_dir():
        return refuse("serve", f"{options.folder} is not a folder")
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(Newest(options.folder))
    try:
        server, thread = start_http_server(options.port, addr=options.listen, registry=registry)
    except (OSError, OverflowError) as error:
        return refuse("serve", f"cannot listen on {options.listen}:{options.port}: {error}")
    try:
        print(f"http://{options.listen}:{server.server_port}/metrics", flush=True)
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()
    return 0
