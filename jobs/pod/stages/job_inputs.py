"""Presence evidence: credentials in the environment, readable files of a data set.

Only whether a credential's value is empty is examined; the value is never kept, printed or passed on.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping

from .deadline import Watch

OWN_NAME = "SEATRIAL_CREDENTIAL_%d"  # the same key of the same Secret, under a name that no image sets
NAMED = 20  # named files; further ones are only counted


def credentials(asked: List[Dict[str, str]], env: Mapping[str, str], through_ssh: bool) -> List[Dict[str, Any]]:
    """Return for each whether the Secret's key reached the pod and is not blank; an image may set the variable itself.

    A process started by ssh lacks the container's variables, so nothing is reported.
    """
    missing = None if through_ssh else False
    there = [bool(env.get(OWN_NAME % number, "").strip()) for number in range(len(asked))]
    return [dict(each, present=True if known else missing) for each, known in zip(asked, there)]


def files(folder: str, names: List[str], watch: Watch) -> Dict[str, Any]:
    """Open each file below a folder and read its first byte; return how many were tried, how many failed and which.

    Each subfolder must be listable. An empty file is not a failure (it may be a marker), and does not count as read.
    Files beyond the time limit are not tried, and are neither good nor bad.
    """
    tried, bad, empty = 0, [], []
    for name in names:
        if watch.stopped():
            break
        tried += 1
        place = os.path.join(folder, name)
        try:
            if os.path.isdir(place):
                filled = bool(os.listdir(place))
            else:
                with open(place, "rb", buffering=0) as stream:
                    filled = bool(stream.read(1))
            if not filled:
                empty.append(name)
        except OSError as error:
            bad.append("%s: %s" % (name, error.strerror or "cannot be read"))
    named = {"files_bad_named": bad[:NAMED], "files_empty_named": empty[:NAMED]}
    return dict(named, files_tried=tried, files_bad=len(bad), files_empty=len(empty))
