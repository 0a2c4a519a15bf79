"""Presence evidence: credentials in the environment, files of a data set that can be opened.

A credential's value is looked at for being empty or not, and never kept, printed or passed on.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping

from .deadline import Watch

OWN_NAME = "SEATRIAL_CREDENTIAL_%d"  # the same key of the same Secret, under a name that no image sets
NAMED = 20  # files that are named; more are counted


def credentials(asked: List[Dict[str, str]], env: Mapping[str, str], through_ssh: bool) -> List[Dict[str, Any]]:
    """Say of each whether the Secret's key came into the pod and is not blank; an image may set the variable itself.

    What ssh started lacks the container's variables, so that none is reported.
    """
    missing = None if through_ssh else False
    there = [bool(env.get(OWN_NAME % number, "").strip()) for number in range(len(asked))]
    return [dict(each, present=True if known else missing) for each, known in zip(asked, there)]


def files(folder: str, names: List[str], watch: Watch) -> Dict[str, Any]:
    """Open each file below a folder and read its first byte; returns how many were tried, how many failed and which.

    A folder among them must be listable. What has nothing in it is not bad (a marker may be so), nor was it read.
    What the time did not allow is not tried, and so neither good nor bad.
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
