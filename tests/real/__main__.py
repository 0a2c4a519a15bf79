"""`python -m tests.real FOLDER...`: play recordings through the watcher; one line each, a total, exit code 1 if any is
wrong."""

from tests.real.playing import brief

raise SystemExit(brief())
