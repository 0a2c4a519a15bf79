"""Symptoms of a user's own (seatrial/faults/own.py), in the form of symptoms.json: they are tried after all others."""

from __future__ import annotations

from typing import Any, Dict, List

LINES: List[Dict[str, Any]] = []
