"""A user's own symptoms (seatrial/faults/own.py), in the form of symptoms.json; they are tried after all others."""

from __future__ import annotations

from typing import Any, Dict, List

LINES: List[Dict[str, Any]] = []
