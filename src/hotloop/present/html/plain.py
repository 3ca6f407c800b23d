"""Pages without a script: elements made from text, put together under a policy that allows one style sheet and nothing else.

What lives here: `el`, the only way to make markup, and `page`. Invariant: a string that is not `Markup` is shown, never parsed:
text and attributes are escaped on the way in, control characters spelled out. Nothing runs, nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from importlib import resources

from .names import show


class Markup(str):
    """Text that is markup already; made by `el` alone."""

    __slots__ = ()


_EMPTY = frozenset({"meta", "br"})


def el(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_="x"` gives class, `stroke_width` stroke-width.

    >>> el("td", "<b>", class_="a&b")
    '<td class="a&amp;b">&lt;b&gt;</td>'
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(show(str(value)), quote=True)}"'
        for key, value in attributes.items()
    )
    if name in _EMPTY:
        return Markup(f"<{name}{words}>")
    return Markup(f"<{name}{words}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else html.escape(show(str(child))) for child in children))


def table(heads: Iterable[object], rows: Iterable[Iterable[object]]) -> Markup:
    """A table; cells that are markup must be `td` elements, heads `th`."""

    def cell(value: object) -> Markup:
        return value if isinstance(value, Markup) else el("td", value)

    head = el("tr", *(x if isinstance(x, Markup) else el("th", x) for x in heads))
    return el("table", el("thead", head), el("tbody", *(el("tr", *(cell(x) for x in row)) for row in rows)))


def section(title: str, *children: Markup) -> Markup:
    return el("section", el("h2", title), *children)


def read_asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """As a policy names a style or a script that is allowed."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page(title: str, *sections: Markup) -> str:
    """A whole document."""
    style = read_asset("plain.css")
    policy = f"default-src 'none'; style-src {hash_of(style)}; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{title} · HotLoop"),
        Markup(f"<style>{style}</style>"),
    )
    footer = el(
        "p", "Written by HotLoop. This file holds everything it shows: it loads nothing and runs nothing.", class_="muted"
    )
    body = el("body", el("main", el("h1", title), *sections, footer))
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'
