"""What MkDocs cannot know by itself: pages that live beside the code, lists of verbs and causes. `mkdocs build --strict`

The READMEs of the examples and benchmarks become pages of the site, and so do the texts of the causes; links between
them and docs/ are put right for it, and stay as they are in the repository, where they work too.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from hotloop.cli.main import CONTENTS

ROOT = Path(__file__).parents[1]
README = re.compile(r"\]\(\.\./(examples/\w+|benchmarks)/(?:README\.md)?(?=[)#])")
CAUSE = re.compile(r"\]\(\.\./src/hotloop/analyse/findings/causes/(\w+)\.py")
CAUSES = runpy.run_path(str(ROOT / "docs/make_causes.py"))


def on_config(config: Any) -> Any:
    for entry in config.nav:
        for purpose in set(entry) & set(CONTENTS):
            entry[purpose] = [*({command.name: f"{command.name}.md"} for command, _ in CONTENTS[purpose]), *entry[purpose]]
        if "Causes" in entry:
            entry["Causes"] = [
                {"all of them": "causes/README.md"},
                *(f"causes/{name}.md" for name in sorted(CAUSES["pages"]())),
            ]
    return config


def on_files(files: Any, config: Any) -> Any:
    pages = {f"examples/{path.parent.name}.md": path for path in (ROOT / "examples").glob("*/README.md")}
    for name, path in {**pages, "benchmarks.md": ROOT / "benchmarks/README.md"}.items():
        text = path.read_text("utf-8").replace("](../../docs/", "](../").replace("](../docs/", "](")
        files.append(File.generated(config, name, content=text))
    for name, text in CAUSES["pages"]().items():
        files.append(File.generated(config, f"causes/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    if page.file.src_uri == "causes/README.md":
        markdown += "\n" + CAUSES["table"]()
    markdown = CAUSE.sub(lambda found: f"](causes/{found[1].replace('_', '-')}.md", markdown)
    return README.sub(r"](\1.md", markdown)
