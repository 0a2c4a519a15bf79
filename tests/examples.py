"""Tests that draw many examples of one property: the quick half takes some of them, the slow half all."""

from __future__ import annotations

import pytest


def rest_is_slow(every: int) -> pytest.MarkDecorator:
    """Pass a test its `every`, the step through its examples: this number in the quick half, 1 in the slow one."""
    return pytest.mark.parametrize("every", [every, pytest.param(1, marks=pytest.mark.slow)])
