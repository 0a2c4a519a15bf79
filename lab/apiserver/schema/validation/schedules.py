"""Cron schedules: five fields in their ranges, with the messages of github.com/robfig/cron."""

from __future__ import annotations

MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
# minute, hour, day of month, month, day of week: (lowest, highest, names)
BOUNDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: index + 1 for index, name in enumerate(MONTHS)}),
    (0, 6, {name: index for index, name in enumerate(DAYS)}),
)


def error(schedule: str) -> str:
    """Return the error message for an invalid schedule, or ""."""
    if schedule.startswith("@"):
        return "" if schedule in MACROS or schedule.startswith("@every ") else f"unrecognized descriptor: {schedule}"
    parts = schedule.split()
    if len(parts) != len(BOUNDS):
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
    for part, bounds in zip(parts, BOUNDS, strict=True):
        for expression in part.split(","):
            wrong = _range(expression, *bounds)
            if wrong:
                return wrong
    return ""


def _range(expression: str, low: int, high: int, names: dict[str, int]) -> str:
    span, *step = expression.split("/")
    if len(step) > 1:
        return f"too many slashes: {expression}"
    ends = span.split("-")
    if len(ends) > 2:
        return f"too many hyphens: {expression}"
    numbers: list[int] = []
    for text in [] if span in ("*", "?") else ends:
        number = names.get(text.lower(), -1) if not text.isdigit() else int(text)
        if number < 0:
            return f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
        numbers.append(number)
    first, last = (numbers[0], numbers[-1]) if numbers else (low, high)
    if step:
        if not step[0].isdigit():
            return f'failed to parse int from {step[0]}: strconv.Atoi: parsing "{step[0]}": invalid syntax'
        if int(step[0]) == 0:
            return f"step of range should be a positive number: {expression}"
        last = high if len(numbers) == 1 else last
    return _bounded(first, last, low, high, expression)


def _bounded(first: int, last: int, low: int, high: int, expression: str) -> str:
    if first < low:
        return f"beginning of range ({first}) below minimum ({low}): {expression}"
    if last > high:
        return f"end of range ({last}) above maximum ({high}): {expression}"
    if first > last:
        return f"beginning of range ({first}) beyond end of range ({last}): {expression}"
    return ""
