"""When cron schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lab.controlplane.timetable import Timetable

NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC).timestamp()  # a Wednesday


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        ("* * * * *", "2026-03-04T12:01"),
        ("*/15 * * * *", "2026-03-04T12:15"),
        ("0 9-17/4 * * *", "2026-03-04T13:00"),
        ("30 2 * * mon", "2026-03-09T02:30"),
        ("0 0 13 * 5", "2026-03-06T00:00"),  # a day of the month or of the week
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("5,50 */12 1 JAN *", "2027-01-01T00:05"),
        ("@daily", "2026-03-05T00:00"),
        ("@weekly", "2026-03-08T00:00"),
        ("10/20 * * * *", "2026-03-04T12:10"),
    ],
)
def test_the_next_time_is_that_of_cron(schedule, due):
    """Steps, ranges, names, macros, and the two day fields."""
    assert datetime.fromtimestamp(Timetable(schedule).after(NOON), UTC).isoformat()[:16] == due


def test_intervals_and_impossible_days():
    """@every counts from now; a day that never comes is never due."""
    assert Timetable("@every 1h30m").after(NOON) == NOON + 5400
    assert Timetable("0 0 31 2 *").after(NOON) is None


def test_a_time_zone_shifts_the_day():
    """Nine in Tokyo is midnight in UTC."""
    assert (
        datetime.fromtimestamp(Timetable("0 9 * * *", "Asia/Tokyo").after(NOON), UTC).isoformat()[:16]
        == "2026-03-05T00:00"
    )
