"""Defaults of `hotloop run` from `[tool.hotloop]` in pyproject.toml.

What lives here: the settings there are, what each may be, and which wins: the command line, then the file, then ours.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..run.adapters import all_hooks

FILE = "pyproject.toml"
# What a setting may be, and how to say it; the others are lists of names.
_TAKES: dict[str, tuple[Any, str]] = {
    "name": (str, "a text in quotes"),
    "duration": ((int, float), "a number of seconds"),
    "max_iterations": (int, "a whole number"),
    "lines": (bool, "true or false"),
    "quiet": (bool, "true or false"),
    "probe": (bool, "true or false"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    name: str | None = None
    duration: float | None = None  # seconds
    max_iterations: int | None = None
    hooks: tuple[str, ...] = field(default_factory=all_hooks)
    lines: bool = True
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    quiet: bool = False
    probe: bool = True


def read_settings(folder: Path, given: Mapping[str, Any]) -> Settings:
    """The settings for a run started in this folder. Of `given`, None means: not given."""
    found = {key: value for key, value in _file(folder).items() if given.get(key) is None}
    found |= {key: value for key, value in given.items() if value is not None}
    return Settings(**{key: _checked(key, value) for key, value in found.items()})


def _file(folder: Path) -> dict[str, Any]:
    path = next((p / FILE for p in (folder, *folder.parents) if (p / FILE).is_file()), None)
    if path is None:
        return {}
    try:
        tools = tomllib.loads(path.read_text("utf-8")).get("tool", {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}); correct it, or run from another folder") from None
    table = tools.get("hotloop", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: `hotloop` in [tool] is no table; write [tool.hotloop] and the settings below it")
    known = {setting.name for setting in fields(Settings)}
    result = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(f"{path}: [tool.hotloop] knows no `{key}`; it knows {', '.join(sorted(known))}")
        result[name] = value
    return result


def _checked(key: str, value: Any) -> Any:
    if key not in _TAKES:
        if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
            raise UsageError(f'`{key}` takes a list of names: {key} = ["one", "another"]')
        unknown = [word for word in value if key == "hooks" and word not in all_hooks()]
        if unknown:
            raise UsageError(f"there are no hooks for {unknown[0]}; there are: {', '.join(all_hooks())}")
        return tuple(value)
    wanted, words = _TAKES[key]
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise UsageError(f"`{key}` in [tool.hotloop] cannot be {value!r}; it takes {words}")
    if key in ("duration", "max_iterations") and value <= 0:
        raise UsageError(f"`{key}` must be more than 0, not {value!r}")
    return value
