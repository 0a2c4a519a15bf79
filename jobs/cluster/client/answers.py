"""Validation of responses with status 200: the kind and form of objects and lists.

A proxy, a gateway or a broken server may answer 200 with other content. Read leniently, that would be an empty cluster:
no nodes, or no pod that holds a GPU. Such a response raises Unreachable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..redact import safe
from ..unstructured import Unstructured, as_map
from .errors import Unreachable
from .list_decoder import decode_list
from .shapes import check, wrong

# Kubernetes is tested up to 150,000 pods (kubernetes.io/docs/setup/best-practices/cluster-large/).
MOST_OBJECTS = 300_000
T = TypeVar("T")
_EMPTY_PAGES = 3


def resource_of(url_path: str) -> tuple[str, bool]:
    """Return a path's resource and whether it names one object; ("", False) for discovery and others.

    The resource of /api/v1/namespaces/ns/pods/p/log is pods, that of /api/v1/namespaces/ns is namespaces.
    """
    root, *parts = url_path.strip("/").split("/")
    parts = parts[1:] if root == "api" else parts[2:] if root == "apis" else []
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return (parts[0], len(parts) > 1) if parts else ("", False)


def is_of(kind: object, resource: str) -> bool:
    """Return whether a kind has this name in URLs, by the rule of Kubernetes' UnsafeGuessKindToResource."""
    word = str(kind or "").lower()
    plural = word + "es" if word.endswith("s") else word[:-1] + "ies" if word.endswith("y") else word + "s"
    return bool(word) and resource.replace("-", "") in (plural, word)


def the_object(answer: Any, url_path: str, where: str) -> Any:
    """Return the answer if it is an object of the requested kind; discovery is not checked."""
    resource, _ = resource_of(url_path)
    if not resource:
        return answer
    if not isinstance(answer, dict):
        raise Unreachable(f"{where}: the response is not a JSON object")
    if not is_of(answer.get("kind"), resource):
        raise Unreachable(f"{where}: the answer is {_a(answer)}, not an object of {resource}")
    if not named(answer):
        raise Unreachable(f"{where}: the answer has no name")
    check(str(answer["kind"]), answer, where)
    return answer


def same_kind(answer: Any, sent: Any, where: str) -> Any:
    """Return the response to a create if it is of the kind that was sent."""
    kind = sent.get("kind") if isinstance(sent, dict) else None
    if kind and (not isinstance(answer, dict) or answer.get("kind") != kind):
        raise Unreachable(f"{where}: a {kind} was sent, the answer is {_a(answer)}")
    if kind:
        check(str(kind), answer, where)
    return answer


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list: its converted objects, each with its key, and the token of the next page."""

    items: list[tuple[str, T]]
    token: str = ""
    version: str = ""


def read_page(data: bytes, url_path: str, where: str, read: Callable[[Any], T]) -> Page[T]:
    """Read one page of a list of named objects; `read` receives them one by one.

    `items: null` is how Go writes an empty list; no `items` at all, or another kind of list, is invalid. Raises
    ValueError for anything but JSON.
    """

    def taken(head: Any, items: Iterator[Any]) -> list[tuple[str, T]]:
        kind = _kind_of_items(head, url_path, where)
        numbered = enumerate(items)
        return [(_key(item), read(item)) for number, item in numbered if _is_sound(item, number, kind, where)]

    answer, items = decode_list(data, taken)
    if items is None:
        items = taken(answer, iter(_decoded_items(answer, url_path, where)))
    meta = as_map(answer.get("metadata"))
    return Page(items, str(meta.get("continue") or ""), str(meta.get("resourceVersion") or ""))


def _kind_of_items(answer: Any, url_path: str, where: str) -> str:
    """Return the kind of the objects of a list; '' if the path names no resource."""
    if not isinstance(answer, dict):
        raise Unreachable(f"{where}: the response is not a list")
    resource, _ = resource_of(url_path)
    kind = str(answer.get("kind") or "")
    if resource and not (kind.endswith("List") and is_of(kind.removesuffix("List"), resource)):
        raise Unreachable(f"{where}: the answer is {_a(answer)}, not a list of {resource}")
    return kind.removesuffix("List") if resource else ""


def _decoded_items(answer: Any, url_path: str, where: str) -> list[Any]:
    _kind_of_items(answer, url_path, where)
    if "items" not in answer:
        raise Unreachable(f"{where}: the list has no key items")
    items = answer["items"] if answer["items"] is not None else []
    if not isinstance(items, list):
        raise Unreachable(f"{where}: items is not a list")
    return items


def _is_sound(item: Any, number: int, kind: str, where: str) -> bool:
    """Return whether an object of a list is readable; raise Unreachable if it is not a valid object.

    Events only supplement the evidence: an unreadable event is dropped.
    """
    if not kind:
        return True
    if not isinstance(item, dict) or not named(item):
        raise Unreachable(f"{where}: items[{number}] is not an object with a name")
    if kind == "Event":
        return not wrong(kind, item)
    check(kind, item, where)
    return True


def watched(item: Unstructured, url_path: str, where: str) -> bool:
    """Return whether to pass on the object of a watch event; raise Unreachable as the_object does."""
    resource, _ = resource_of(url_path)
    if not resource:
        return True
    if not is_of(item.get("kind"), resource):
        raise Unreachable(f"{where}: the watch sent {_a(item)}, not an object of {resource}")
    if item["kind"] == "Event":
        return not wrong("Event", item)
    check(str(item["kind"]), item, where)
    return True


def named(item: Unstructured) -> bool:
    """Return whether an object has a name, as every stored object does."""
    meta = item.get("metadata")
    return isinstance(meta, dict) and isinstance(meta.get("name"), str) and bool(meta["name"])


class Pages:
    """A counter of the pages of one list, which stops endless lists and drops repeated objects."""

    def __init__(self, where: str, deadline_s: float) -> None:
        self._where = where
        self._begin = time.monotonic()
        self._deadline_s = deadline_s
        self._pages = self._objects = self._empty = 0
        self._marks: set[str] = set()
        self._keys: set[str] = set()

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self._begin + self._deadline_s - time.monotonic()

    def turn(self, page: Page[T]) -> list[T]:
        """Count a page; return its objects without those of earlier pages.

        Pages may overlap where a server or a cache continues with another view. Raises Unreachable for a list that
        repeats pages or does not end.
        """
        self._pages += 1
        self._objects += len(page.items)
        self._empty = 0 if page.items else self._empty + 1
        fresh = [item for key, item in page.items if self._is_new(key)]
        if not page.token:
            return fresh
        # Pages are ordered by key: no page starts, or is continued, at the same key as an earlier one.
        marks = {f"continue {page.token}"} | {f"first {key}" for key, _ in page.items[:1] if key}
        if marks & self._marks:
            raise Unreachable(f"{self._where}: the list repeats: page {self._pages} came before{self._so_far()}")
        self._marks |= marks
        if self._empty >= _EMPTY_PAGES:
            raise Unreachable(f"{self._where}: the list does not end: {self._empty} empty pages, and more follow")
        if self._objects > MOST_OBJECTS:
            raise Unreachable(f"{self._where}: the list does not end: more than {MOST_OBJECTS} objects")
        if self.left_s <= 0:
            raise self.overdue()
        return fresh

    def _is_new(self, key: str) -> bool:
        is_new = not key or key not in self._keys
        self._keys.add(key)
        return is_new

    def overdue(self) -> Unreachable:
        """Return the error for a list that exceeded its deadline."""
        took = time.monotonic() - self._begin
        return Unreachable(f"{self._where}: the list had not ended after {took:.0f} s{self._so_far()}")

    def _so_far(self) -> str:
        return f" ({self._objects} objects on {self._pages} pages)" if self._pages else ""


def _key(item: Any) -> str:
    meta = item.get("metadata") if isinstance(item, dict) else None
    return f"{meta.get('namespace') or ''}/{meta['name']}" if isinstance(meta, dict) and meta.get("name") else ""


def _a(answer: Unstructured | Any) -> str:
    kind = answer.get("kind") if isinstance(answer, dict) else None
    return f"a {safe(kind, 60)}" if isinstance(kind, str) and kind else "an object without a kind"
