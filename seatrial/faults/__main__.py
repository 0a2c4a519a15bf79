"""`python -m seatrial.faults`: writes the parts of the catalogue for pods and log analyzer, after each change of it."""

from .catalogue import WEIGHED, weighed
from .lines import COMPILED, compiled

if __name__ == "__main__":
    COMPILED.write_text(compiled(), encoding="utf-8")
    WEIGHED.write_text(weighed(), encoding="utf-8")
