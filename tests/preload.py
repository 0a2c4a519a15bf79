"""Imported by the process from which tests/program.py forks: all imports of a run, without side effects.

Plugins and checks are left to pytest, which rewrites their assertions; the fakes run in pods.
"""

import contextlib
import gc
import io
import pkgutil
import re
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

from _pytest.config import get_config

from cli.__main__ import main
from lab.apiserver.authority import Authority

LIBRARIES = ("execnet", "jinja2", "kubernetes.client", "kubernetes.config", "pdb", "readline", "tomllib")
PACKAGES = ("seatrial", "jobs", "checks.rules", "checks.profiles", "reports", "cli", "lab")
NOT = {"plugin", "fakes", "pod"}

sys.dont_write_bytecode = False  # whatever the first process's setting: the processes share compiled code
gc.disable()  # what is imported stays: it is looked over once, at the end
vars(re)["_MAXCACHE"] = 1 << 14  # patterns of the pods' program are then compiled only once
get_config()  # pytest and its own plugins
for name in (*LIBRARIES, "tests.forkedpods"):
    import_module(name)
for package in map(import_module, PACKAGES):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not NOT & set(module.name.split(".")):
            import_module(module.name)
handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
with contextlib.redirect_stdout(io.StringIO()):
    main(["checks"])  # makes pytest import the checks with rewritten assertions
for number, handler in handlers.items():
    if signal.getsignal(number) is not handler:
        signal.signal(number, handler)
plugin = import_module("pytest_html.plugin")
# First uses that are expensive: OpenSSL, and the page's template, which pytest-html compiles in each run.
Authority.create(time.time)
page = plugin._read_template([Path(str(plugin.__file__)).parent / "resources"])
vars(plugin)["_read_template"] = lambda _: page
gc.collect()
gc.freeze()
gc.enable()
