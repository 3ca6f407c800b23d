"""The constants of this machine in a file: one row per machine, interpreter and torch.

What lives here: where the file is (`$XDG_CACHE_HOME/hotloop/machines.json`), and reading and writing it; a session keeps a copy
(`machine.json`), so that it says the same on another machine. Invariant: a file that cannot be read counts as empty.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ..model.machine import NAMES, Machine
from .writer import write_json

MACHINE_FILE = "machine.json"
MOST_BYTES = 1 << 16
_MOST_ROWS = 32


def cache_file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotloop" / "machines.json"


def fingerprint(host: Mapping[str, Any]) -> str:
    """Changes with whatever changes the constants: processor, cores, interpreter, torch."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    what = [host.get("cpu"), host.get("usable_cores"), platform.python_version(), torch]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def read_kept(key: str) -> Machine | None:
    """Of this machine, where it was measured before."""
    row = _rows().get(key)
    return parse_machine(row) if row is not None else None


def keep(key: str, machine: Machine) -> Path:
    """Beside those of other machines that share the home folder; answers the file."""
    path, rows = cache_file(), _rows()
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = dict(list(rows.items())[-_MOST_ROWS:]) | {key: machine_data(machine)}
    write_json(str(path), {"version": 1, "machines": rows})
    return path


def machine_data(machine: Machine) -> dict[str, float]:
    return {name: getattr(machine, name) for name in NAMES}


def parse_machine(said: Any) -> Machine:
    """From anyone's JSON: what is no sensible number is left out."""
    if not isinstance(said, dict):
        return Machine()
    good = {name: float(said[name]) for name in NAMES if type(said.get(name)) in (int, float) and 0 < said[name] < 1e12}
    return Machine(**good)


def read_machine(data: bytes) -> Machine:
    try:
        return parse_machine(json.loads(data[:MOST_BYTES]))
    except (ValueError, RecursionError):
        return Machine()


def _rows() -> dict[str, Any]:
    try:
        rows = json.loads(cache_file().read_bytes()[:MOST_BYTES])["machines"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return rows if isinstance(rows, dict) else {}
