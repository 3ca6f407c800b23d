"""The pages of the causes, from the modules that know them; docs/make_site.py puts them into the site."""

from __future__ import annotations

import re
from pathlib import Path

from hotloop.analyse.findings.engine import causes, title


def pages() -> dict[str, str]:
    """The text of each cause's page, by its name."""
    found = {}
    for name, module in causes().items():
        text = (module.__doc__ or "").strip()
        source = Path(module.__file__).read_text()
        limits = [line for line in source.splitlines() if re.match(r"(LEAST|MOST|ENOUGH)\w*(, \w+)* = ", line)]
        extra = "\n\nThresholds:\n\n" + "\n".join(f"    {line}" for line in limits) if limits else ""
        found[name] = f"# {name}\n\n{text}{extra}\n\nAction in the finding: {module.ACTION}.\n"
    return found


def table() -> str:
    rows = (f"| [{name}]({name}.md) | {title(module)} |\n" for name, module in causes().items())
    return "| cause | what it is |\n|---|---|\n" + "".join(rows)
