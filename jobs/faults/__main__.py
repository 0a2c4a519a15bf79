"""`python -m jobs.faults`: writes what the pods get of the catalogue, after a change of `lines:`."""

from .lines import COMPILED, compiled

if __name__ == "__main__":
    COMPILED.write_text(compiled(), encoding="utf-8")
