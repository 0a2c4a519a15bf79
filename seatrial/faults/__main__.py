"""`python -m seatrial.faults`: writes what the pods and the log analyzer get of the catalogue, after a change of it."""

from .catalogue import WEIGHED, weighed
from .lines import COMPILED, compiled

if __name__ == "__main__":
    COMPILED.write_text(compiled(), encoding="utf-8")
    WEIGHED.write_text(weighed(), encoding="utf-8")
