"""Entry point of ``python -m checks`` in a clone: the command line ``seatrial``."""

from cli.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
