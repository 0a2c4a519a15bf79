"""A table of cases: one test for all rows, which tries each and names the failing ones. Rows share its fixtures.

A separate test for each row costs every worker a millisecond and more, for thousands of rows that take microseconds.
"""

from __future__ import annotations

import inspect
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LONGEST = 200  # of what a row is called


def table(names: str, rows: Iterable[Any], ids: Callable[[Any], str] = repr) -> Callable[[Callable[..., None]], Any]:
    """Decorate a test with the parameters `names` ("fault, variant"): it is called once for each row."""
    parameters, every = names.split(", "), list(rows)
    assert every, "a table without rows tests nothing"

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        shared = [each for name, each in signature.parameters.items() if name not in parameters]

        def test(**fixtures: Any) -> None:
            failed = []
            for row in every:
                try:
                    function(**dict(zip(parameters, row if len(parameters) > 1 else (row,), strict=True)), **fixtures)
                except Exception:  # noqa: BLE001 -- the others are tried, too
                    failed.append(f"{ids(row)[:LONGEST]}:\n{traceback.format_exc()}")
            assert not failed, f"{len(failed)} of {len(every)} rows failed\n" + "\n".join(failed)

        vars(test)["__signature__"] = signature.replace(parameters=shared)
        test.__name__, test.__doc__, test.__module__ = function.__name__, function.__doc__, function.__module__
        return test

    return decorated
