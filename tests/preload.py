"""Imported by the process from which tests/program.py forks: everything that a run imports, without its starting anything.

Pytest's own plugins are left to pytest, which rewrites their assertions; the fakes run in pods.
"""

import gc
import pkgutil
from importlib import import_module

from _pytest.config import get_config

from tests.compiled import of_the_pods

LIBRARIES = ("execnet", "jinja2", "kubernetes.client", "kubernetes.config", "pdb", "readline", "tomllib")
PACKAGES = ("jobs", "checks.rules", "checks.faults", "checks.profiles", "reports", "cli", "lab")
NOT = {"plugin", "fakes", "pod"}

get_config()  # pytest and its own plugins
for name in LIBRARIES:
    import_module(name)
for package in map(import_module, PACKAGES):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not NOT & set(module.name.split(".")):
            import_module(module.name)
of_the_pods()
gc.freeze()
