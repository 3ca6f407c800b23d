"""Writes docs/causes/: one page per cause, from the modules that know them. `python docs/make_causes.py`"""

from __future__ import annotations

import re
from pathlib import Path

from hotloop.analyse.findings.engine import causes, title

FOLDER = Path(__file__).parent / "causes"


def pages() -> dict[str, str]:
    """File name -> text."""
    found = {}
    rows = []
    for name, module in causes().items():
        text = (module.__doc__ or "").strip()
        source = Path(module.__file__).read_text()
        limits = [line for line in source.splitlines() if re.match(r"(LEAST|MOST|ENOUGH)\w*(, \w+)* = ", line)]
        extra = "\n\nThresholds:\n\n" + "\n".join(f"    {line}" for line in limits) if limits else ""
        found[f"{name}.md"] = f"# {name}\n\n{text}{extra}\n\nAction in the finding: {module.ACTION}.\n"
        rows.append(f"| [{name}]({name}.md) | {title(module)} |")
    head = (
        "# Causes\n\nWhat a [finding](../findings.md) can name. "
        "`hotloop explain CAUSE` prints what they say, without the thresholds.\n\n"
        "| cause | what it is |\n|---|---|\n"
    )
    found["README.md"] = head + "\n".join(rows) + "\n"
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
