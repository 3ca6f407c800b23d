"""The report as one HTML file: template, style, script and data put together.

What lives here: assembly and its safety. Invariants: everything that comes from a session is inside one JSON block, in ASCII
and without `<`, `>` and `&`, so nothing in it can end the block or open another; only our own style and script, known by
their hashes, may run; nothing is fetched, nothing is stored. The same report gives the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ...analyse.diagnosis import Diagnosis
from .data import Limits, page_data
from .plain import hash_of, read_asset

MAX_BYTES = 1_500_000  # what a mail or a code review takes without a thought
SCRIPTS = (
    "base.js", "loop.js", "limits.js", "sheet.js", "icicle.js", "blocks.js", "timeline.js", "series.js", "device.js",
    "tables.js", "main.js",
)  # fmt: skip
_MARK = re.compile(r"%%(policy|style|data|script)%%")


def report_html(diagnosis: Diagnosis) -> str:
    """A whole page, ASCII but for our own text, of at most MAX_BYTES."""
    style = read_asset("report.css")
    script = '(() => {\n"use strict";\n' + "\n".join(read_asset(name) for name in SCRIPTS) + "})();\n"
    parts = {"style": style, "script": script, "policy": _policy(style, script)}
    room = MAX_BYTES - len((read_asset("template.html") + style + script).encode()) - 2000
    parts["data"] = _fit(lambda limits: page_data(diagnosis, limits), room)
    return _MARK.sub(lambda found: parts[found[1]], read_asset("template.html"))


def html_bytes(diagnosis: Diagnosis) -> bytes:
    """The page as it is written to a file."""
    return report_html(diagnosis).encode()


def escape_json(data: Any) -> str:
    """JSON that may stand inside a script element.

    >>> escape_json("</script><!--&")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--\\\\u0026"'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _fit(choose: Callable[[Limits], dict[str, Any]], room: int) -> str:
    """The data, with fewer rows as long as there is no room for them: what is left out is gathered and counted."""
    limits = Limits()
    while True:
        text = escape_json(choose(limits))
        if len(text) <= room or limits.is_least:
            return text
        limits = limits.halved()


def _policy(style: str, script: str) -> str:
    """Nothing is allowed but these two texts; and not even our script may turn text into markup."""
    return (
        f"default-src 'none'; style-src {hash_of(style)}; script-src {hash_of(script)}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
