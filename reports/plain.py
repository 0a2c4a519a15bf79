"""What others wrote, as a report may print it: names, messages and lines of logs come from anywhere."""


def plain(text: object, longest: int | None = None) -> str:
    """Return a text as one line that steers no terminal and turns no direction of reading; cut to ``longest``."""
    line = str(text)
    if not line.isprintable():
        line = "".join(character if character.isprintable() else " " for character in line)
    return line if longest is None or len(line) <= longest else line[: longest - 1] + "…"
