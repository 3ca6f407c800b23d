"""What a run keeps of the script's source: which lines form a block, and the text of files that took time.

What lives here: writing `sources.json` at the end of a recording, while the files are those that ran, and reading it back.
Views and analysis use this alone, so a session that came from elsewhere never makes us open a file it names.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import HotloopError
from ..model.code import is_ours, is_yours
from ..model.session import Source
from ..model.shard import Place
from .blocks import Blocks
from .samples import read_places
from .schema import SHARD_SUFFIX
from .writer import write_json

SOURCES_FILE = "sources.json"
_MOST_FILES, _MOST_BYTES, _MOST_BLOCKS, _MOST_CHARS, _MOST_LINES = 64, 2 << 20, 5000, 160, 2000


def keep_sources(session: Path, places: Iterable[Place]) -> dict[str, Source]:
    """Write what is needed of the user's own files that were seen, and answer it; a file that cannot be read is left out."""
    lines: dict[str, set[int]] = {}
    for place in places:
        if is_yours(place.file) and not is_ours(place.file):
            lines.setdefault(place.file, set()).add(place.line)
    kept: dict[str, Any] = {}
    for name in list(lines)[:_MOST_FILES]:
        try:
            path = Path(name)
            if path.stat().st_size > _MOST_BYTES:
                continue
            text = path.read_text("utf-8", "replace")
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
        rows = text.splitlines()
        wanted = range(1, len(rows) + 1) if len(rows) <= _MOST_LINES else sorted(lines[name])
        kept[name] = {
            "blocks": _blocks(tree)[:_MOST_BLOCKS],
            "functions": _functions(tree)[:_MOST_BLOCKS],
            "text": {str(n): rows[n - 1].rstrip()[:_MOST_CHARS] for n in wanted if 0 < n <= len(rows)},
        }
    if kept:
        write_json(str(session / SOURCES_FILE), {"version": 1, "files": kept})
    return {name: _source(said) for name, said in kept.items()}


def places_in(shards: Path) -> Iterator[Place]:
    """What the samplers of all processes saw so far; of a shard that cannot be read, nothing."""
    for path in sorted(shards.glob(f"*{SHARD_SUFFIX}"))[:_MOST_FILES]:
        try:
            yield from read_places(Blocks(path.read_bytes()))
        except (OSError, HotloopError):
            continue


def _blocks(tree: ast.AST) -> list[tuple[int, int]]:
    found = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                found.append((body[0].lineno, max(s.end_lineno or s.lineno for s in body)))
    return found


def _functions(tree: ast.AST) -> list[tuple[str, int, int]]:
    """Qualified names, as the interpreter gives them."""
    found = []
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, prefix = stack.pop()
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.append((prefix + child.name, child.lineno, child.end_lineno or child.lineno))
                inner = f"{prefix}{child.name}.<locals>."
            elif isinstance(child, ast.ClassDef):
                inner = f"{prefix}{child.name}."
            stack.append((child, inner))
    return sorted(found, key=lambda f: f[1])


def read_sources(data: bytes) -> dict[str, Source]:
    """From the file's bytes, whoever wrote them."""
    try:
        files = json.loads(data)["files"]
        return {str(name): _source(said) for name, said in list(files.items())[:_MOST_FILES]}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def _source(said: Any) -> Source:
    blocks = tuple((int(a), int(b)) for a, b in said["blocks"][:_MOST_BLOCKS])
    functions = tuple((str(n)[:500], int(a), int(b)) for n, a, b in said["functions"][:_MOST_BLOCKS])
    text = {int(line): str(row)[:_MOST_CHARS] for line, row in list(said["text"].items())[:20000]}
    return Source(blocks, text, functions)
