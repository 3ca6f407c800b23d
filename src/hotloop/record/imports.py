"""Do something once a module has been imported, or is about to be: now if it is, later if it will be.

What lives here: one finder on `sys.meta_path`, present only while something waits. Who may touch it: hooks that patch
only what is imported. Invariant: an import never fails because of us, and no finder is left behind by `forget()`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: dict[str, list[Callable[[ModuleType], None]]] = {}
_before: dict[str, Callable[[ModuleType], None]] = {}
_empty: set[str] = set()  # modules that are there, but whose first line is still to come


def when_imported(name: str, action: Callable[[ModuleType], None], before: bool = False) -> None:
    """Run `action(module)` now if the module is loaded, else right after it will have been; or right before its first line."""
    module = sys.modules.get(name)
    if module is not None and name not in _empty:
        action(module)
        return
    waiting = _waiting.setdefault(name, [])
    if before:
        _before[name] = action
    else:
        waiting.append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def forget() -> None:
    """Nothing waits any more."""
    _waiting.clear()
    _before.clear()
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _Finder:
    """Finds nothing itself: it lets the others find the module and runs the actions when it has been executed."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        spec = None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
        loader: Any = spec.loader if spec is not None else None
        if not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if name in _before:
                _empty.add(name)
                _run(_before.pop(name), module)
                _empty.discard(name)
            execute(module)
            for action in _waiting.pop(name, ()):
                _run(action, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader shared by many modules (built-in ones): those are loaded before us anyway
        return spec


def _run(action: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        action(module)
    except Exception:
        pass  # a hook that fails must not fail the import; `doctor` shows which hooks are live


_finder = _Finder()
