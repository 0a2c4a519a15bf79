"""What a log store answers as one JSON document: Loki, Elasticsearch and OpenSearch, CloudWatch, Cloud Logging.

Such a document cannot be read before its end, so that its size is bounded. Its records become lines in the order of
their times: a store answers with the newest one first, or stream by stream.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from ..pod.nccl_reader.errors import NcclLogError
from ..pod.nccl_reader.unwrap import text_of
from .log_exports import LOOK, SHOWN, TIMES, carried, may_lack, texts_in

MAX_ANSWER = 64 * 1024 * 1024  # bytes; Loki answers with at most 5,000 lines unless it is told otherwise
_DOCUMENT = re.compile(rb"\s*[{\[]\s*[\"{]")
_BEGINNINGS = re.compile(
    rb'"resultType"\s*:\s*"streams"|"streams"\s*:\s*\[|"hits"\s*:\s*\[|"events"\s*:\s*\[|"(?:results|entries)"\s*:\s*\[\s*[{\[]|\A\s*\[\s*[{"]'
)
"""Loki (HTTP API: query_range, push), Elasticsearch (Search API), CloudWatch (GetLogEvents, GetQueryResults), Cloud
Logging (entries:list, gcloud logging read), Splunk; and lines that somebody's script wrote as a list."""

Record = tuple[Any, str]
"""Time as the store prints it, None without one; text."""


def opened(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a log, of an export what it carries, of a store's answer its lines.

    By one look at the beginning: most logs are passed on as they are. Raises NcclLogError where what has to be held as
    a whole is too large.
    """
    first = next(chunks, b"")
    while len(first) < LOOK and (more := next(chunks, b"")):
        first += more
    chunks = chain([first], chunks)
    if _DOCUMENT.match(first) and _is_answer(first):
        yield from _answered(chunks)
    else:
        yield from carried(chunks) if SHOWN.search(first[:LOOK]) else chunks


def _answered(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a store's answer."""
    parts, size = [], 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER:
            raise NcclLogError(
                "a log store's answer of more than %d MB in one JSON document: ask it for fewer lines, or plain ones"
                % (MAX_ANSWER >> 20)
            )
    whole = b"".join(parts)
    try:
        document = json.loads(whole)
    except (ValueError, RecursionError):
        yield whole
        yield b"\n(not read: the rest of a JSON document that is damaged or cut)"
        return
    records = records_of(document)
    yield _lines(records) or whole
    if left := may_lack(len(records)):
        yield left


def _lines(records: list[Record]) -> bytes:
    return b"".join(text.rstrip("\n").encode("utf-8", "replace") + b"\n" for _, text in records)


def _is_answer(head: bytes) -> bool:
    """Say whether a document that begins like this may be a store's answer, and no JSON for each line."""
    return text_of(head.lstrip().partition(b"\n")[0]) is None and _BEGINNINGS.search(head) is not None


def records_of(document: Any) -> list[Record]:
    """Return the records of a store's answer, the oldest first; none where it is no such answer.

    A record in which no text is found is a text itself. Raises NcclLogError where the answer says that there are more
    (Elasticsearch gives 10 unless it is asked for more).
    """
    _all_given(document)
    records = list(_records(document))
    if all(text is None for (_, text), _ in records):
        return []
    return _in_order([(time, json.dumps(found) if text is None else text) for (time, text), found in records])


def _all_given(document: Any) -> None:
    """Refuse a part of the lines that were found: what is left out may be what went wrong."""
    if not isinstance(document, dict):
        return
    hits, statistics, shards = (document.get(key) for key in ("hits", "statistics", "_shards"))
    total = hits.get("total") if isinstance(hits, dict) else None
    count, more = (total.get("value"), total.get("relation") == "gte") if isinstance(total, dict) else (total, False)
    if isinstance(statistics, dict) and isinstance(statistics.get("recordsMatched"), float | int):
        count = int(statistics["recordsMatched"])
    given = len(_list(hits, "hits") or _list(document, "results"))
    if isinstance(count, int) and count + more > given > 0:
        raise NcclLogError(
            "the log store found %s%d lines and this answer holds %d: ask it for all of them (size, limit)"
            % ("at least " * more, count, given)
        )
    failed = document.get("timed_out") is True or (isinstance(shards, dict) and shards.get("failed"))
    if given and (failed or document.get("status") in _UNFINISHED):
        raise NcclLogError("the log store says that its search did not come to its end: ask it again")
    if (_list(document, "events") or _list(document, "entries")) and any(map(document.get, _NEXT)):
        raise NcclLogError(
            "the log store has more lines than this answer holds: ask for those behind its nextToken, too"
        )


_UNFINISHED = ("Scheduled", "Running", "Failed", "Cancelled", "Timeout", "Unknown")  # GetQueryResults
_NEXT = ("nextToken", "NextToken", "nextPageToken")


def _records(document: Any) -> Iterator[tuple[tuple[Any, str | None], Any]]:
    """Yield time and text of what is logged in an answer, None for a text that is not found, and the whole record."""
    if isinstance(document, list):
        for each in document:
            yield ((None, each) if isinstance(each, str) else _record(each)), each
        return
    if not isinstance(document, dict):
        return
    data, hits = document.get("data"), document.get("hits")
    streams = data.get("result") if isinstance(data, dict) else document.get("streams")
    for stream in streams if isinstance(streams, list) else ():
        for entry in _list(stream, "values"):
            if isinstance(entry, list) and len(entry) > 1 and isinstance(entry[1], str):
                yield (entry[0], entry[1]), entry
    for hit in _list(hits, "hits"):
        yield _record((hit.get("_source") or hit.get("fields")) if isinstance(hit, dict) else None), hit
    for each in (*_list(document, "events"), *_list(document, "entries")):
        yield _record(each), each
    for result in _list(document, "results"):  # a list of fields, each with its name
        named = [field for field in result if isinstance(field, dict)] if isinstance(result, list) else []
        fields = {str(field.get("field")): field.get("value") for field in named} if named else result
        yield _record(fields), result


def _list(holder: Any, key: str) -> list[Any]:
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []


def _record(fields: Any) -> tuple[Any, str | None]:
    """Return the time and the text of a record with named fields, each of which may be a list of one."""
    if not isinstance(fields, dict):
        return None, None
    payload = fields.get("jsonPayload")
    named: dict[Any, Any] = {**payload, **fields} if isinstance(payload, dict) else fields
    single = {
        key: value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) else value
        for key, value in named.items()
    }
    texts = texts_in(single)
    return next((single[key] for key in TIMES if key in single), None), "\n".join(texts) if texts else None


def _in_order(records: list[Record]) -> list[Record]:
    """Return records by their time, those of one time as they were written; as they are where times are unlike."""
    times = [time.rstrip("Z") if isinstance(time, str) else time for time, _ in records]
    if not times or not (all(isinstance(time, str) for time in times) or all(map(_is_number, times))):
        return records
    if times[0] > times[-1]:  # then those of one time are written newest first, too
        records, times = records[::-1], times[::-1]
    return [records[at] for at in sorted(range(len(times)), key=times.__getitem__)]


def _is_number(time: Any) -> bool:
    return isinstance(time, (int, float)) and not math.isnan(time)  # which json reads
