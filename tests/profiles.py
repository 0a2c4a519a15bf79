"""The shipped profiles, each read once: several tests are made for each of them, in every worker."""

from __future__ import annotations

import functools

from checks.profiles.loader import load_profile, profile_names

shipped = functools.cache(load_profile)
WITH_GPUS = tuple(name for name in profile_names() if not shipped(name).gpu.none)
