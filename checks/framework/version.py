"""The installed version of this program."""

from __future__ import annotations


def version() -> str:
    """Return the installed version, or say that this is a clone."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 -- few commands ask

    try:
        return version("seatrial")
    except PackageNotFoundError:
        return "(a clone, not installed)"
