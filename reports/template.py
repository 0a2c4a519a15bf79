"""The templates of the HTML pages, in templates/: every value is escaped, and a page runs only its own script."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from .plain import sentence

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

HERE = Path(__file__).parent


def render(name: str, **values: object) -> Markup:
    """Return a template of templates/ with values, which may themselves be rendered templates."""
    from markupsafe import Markup  # noqa: PLC0415 -- only a page needs the library

    return Markup(_environment().get_template(name).render(values))  # noqa: S704 -- autoescape is on


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    script = (HERE / "page.js").read_text(encoding="utf-8")
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["sentence"] = sentence
    made.globals |= {
        "style": Markup((HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 -- files of this package
        "script": Markup(script),  # noqa: S704
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return made


def _printable(value: object) -> object:
    """Replace characters that change the text direction; line breaks and our markup are unchanged."""
    if type(value) is not str or value.isprintable():
        return value
    return "".join(each if each.isprintable() or each == "\n" else " " for each in value)
