"""When is a cron schedule due? Five fields or a macro, in a time zone, as github.com/robfig/cron reads them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from ..apiserver.schema.validation.schedules import BOUNDS

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
UNITS = {"h": 3600, "m": 60, "s": 1}
MOST_DAYS = 5 * 366
"""A schedule that names no day within five years never runs."""


class Timetable:
    """A schedule that is known to be well-formed."""

    def __init__(self, schedule: str, zone: str | None = None) -> None:
        self._zone: tzinfo = ZoneInfo(zone) if zone else UTC
        self._every = 0
        if schedule.startswith("@every "):
            parts = re.findall(r"(\d+)(h|m|s)", schedule)
            self._every = max(1, sum(int(count) * UNITS[unit] for count, unit in parts))
            schedule = "@hourly"
        fields = MACROS.get(schedule, schedule).split()
        self._minutes, self._hours, self._days, self._months, self._weekdays = (
            _field(text, *bounds) for text, bounds in zip(fields, BOUNDS, strict=True)
        )
        self._any_day = fields[2][0] in "*?" or fields[4][0] in "*?"

    def after(self, moment: float) -> float | None:
        """The first time after `moment`, in seconds of the epoch."""
        if self._every:
            return float(int(moment) + self._every)
        start = datetime.fromtimestamp(moment, self._zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = start.replace(hour=0, minute=0)
        for _ in range(MOST_DAYS):
            if self._has(day):
                for hour in sorted(self._hours):
                    for minute in sorted(self._minutes):
                        due = day.replace(hour=hour, minute=minute)
                        if due >= start and due.timestamp() > moment:
                            return due.timestamp()
            day = (day + timedelta(days=1)).replace(hour=0, minute=0)
        return None

    def _has(self, day: datetime) -> bool:
        if day.month not in self._months:
            return False
        of_month, of_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return of_month and of_week if self._any_day else of_month or of_week


def _field(text: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span in ("*", "?"):
            first, last = low, high
        else:
            ends = [names.get(end.lower(), -1) if not end.isdigit() else int(end) for end in span.split("-")]
            first, last = ends[0], ends[-1] if len(ends) > 1 or not step else high
        found.update(range(first, last + 1, int(step or 1)))
    return found
