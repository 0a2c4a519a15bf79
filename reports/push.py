"""Pushes a run's metrics to a Pushgateway, under one group for each namespace.

A scheduled run remembers what came before and replaces the group. A run by hand replaces only what it shows: the time
of the last success and the nodes that were called bad stay as the scheduled runs left them; the next one takes over.
"""

from __future__ import annotations

from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError

from prometheus_client import push_to_gateway, pushadd_to_gateway

from .metrics import registry
from .schema import Record

JOB = "seatrial"


class PushError(Exception):
    """The metrics did not arrive; one line, with nothing of the address in it, which may hold a password."""


def push(url: str, record: Record, **known: Any) -> None:
    """Push a record's metrics; ``known`` is what a scheduled run remembers, see metrics.exposition.

    Raises PushError.
    """
    namespace = record["cluster"].get("namespace") or "default"
    send = push_to_gateway if known else pushadd_to_gateway
    try:
        send(url, job=JOB, grouping_key={"namespace": namespace}, registry=registry(record, **known))
    except HTTPError as error:
        raise PushError(f"the Pushgateway answered {error.code} {error.reason}") from error
    except URLError as error:
        raise PushError(f"the Pushgateway was not reached: {error.reason}") from error
    except (OSError, ValueError, HTTPException) as error:
        raise PushError(f"this is no address, or nothing there speaks HTTP ({type(error).__name__})") from error
