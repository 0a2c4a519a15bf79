"""Object storage evidence: one unsigned HEAD of the bucket; credentials are never read.

To an unsigned request, an existing bucket answers 403 or 200, a missing one 404 (docs.aws.amazon.com, S3 API:
HeadBucket). Only the presence of credentials in the environment is judged.
"""

from __future__ import annotations

import os
import re
import ssl
import time
import urllib.error
import urllib.request
from typing import Any, Dict, Mapping, Optional

from seatrial.logs.reader import redact

from .deadline import Watch

TIMEOUT_S = 8.0
PATIENCE_S = 12.0
# Substitutes for keys: a token file or an agent of the platform (docs.aws.amazon.com, SDK reference: credential chain).
INSTEAD = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SHARED_CREDENTIALS_FILE",
)
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def reach(bucket: Mapping[str, Any], env: Mapping[str, str], watch: Watch) -> Dict[str, Any]:
    """Query one bucket; return its facts."""
    data: Dict[str, Any] = {
        "uri": bucket["uri"],
        "endpoint": bucket["endpoint"] or None,
        "reachable": False if bucket["uri"] else None,
        "status": None,
        "region": None,
        "can_sign": can_sign(bucket["env"], env),
        "missing": [],
        "seconds": None,
        "error": None,
    }
    data["missing"] = [name for name in bucket["env"] if not env.get(name)]
    if not bucket["uri"]:  # the bucket's name is in an environment variable, which is not read
        return data
    url = url_of(
        bucket["uri"], bucket["endpoint"] or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
    )
    began = time.monotonic()
    while True:
        data["error"] = _ask(url, data)
        if data["reachable"] or time.monotonic() - began > PATIENCE_S or watch.stopped():
            break
        time.sleep(0.5)
    data["seconds"] = round(time.monotonic() - began, 3)
    return data


def can_sign(names: Any, env: Mapping[str, str]) -> bool:
    """Return whether all named variables are set, or substitutes for those of Amazon's SDKs."""
    missing = [name for name in names if not env.get(str(name))]
    if not all(name in KEYS for name in missing):
        return False
    return not missing or any(
        env.get(name) and (not name.endswith("FILE") or os.path.exists(env[name])) for name in INSTEAD
    )


def url_of(uri: str, endpoint: str) -> str:
    """Return the URL of a bucket: path style below an endpoint, a separate host at Amazon."""
    match = re.match(r"s3://([^/]+)", uri)
    bucket = match.group(1) if match else ""
    if endpoint:
        return "%s/%s" % (endpoint.rstrip("/"), bucket)
    return "https://%s.s3.amazonaws.com/" % bucket


def _ask(url: str, data: Dict[str, Any]) -> Optional[str]:
    """Send one HEAD; fill status and region; return why there was no answer."""
    request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "seatrial"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310  (http or https, checked before)
            data["status"], headers = answer.status, answer.headers
    except urllib.error.HTTPError as refusal:  # also an answer: the bucket was reached
        data["status"], headers = refusal.code, refusal.headers
        refusal.close()
    except (urllib.error.URLError, OSError, ValueError, ssl.SSLError) as error:
        return redact.redact(str(getattr(error, "reason", None) or error))[:300]
    data["reachable"] = data["status"] < 500
    data["region"] = (headers.get("x-amz-bucket-region") or None) if headers else None
    return None if data["reachable"] else "the endpoint answers %d" % data["status"]
