"""Installing the hooks: which integrations, when, and what became of them.

What lives here: the one function `run.child` calls. Invariant: whatever fails is a note in the session (`hooks.jsonl`), never
an exception in the script; `uninstall()` leaves nothing behind.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..record import imports
from ..store.schema import HOOKS_FILE
from . import _patch as p
from . import environments

if TYPE_CHECKING:
    from ..model.trace import TraceSettings

INTEGRATIONS = ("torch", "gymnasium", "stable_baselines3", "torchrl", "rllib", "logs", "workers", "classes")


class Hooks:
    """The hooks of this process."""

    def __init__(
        self, recorder: Any, session: str, names: Iterable[str] = INTEGRATIONS, trace: TraceSettings | None = None
    ) -> None:
        self._recorder, self._session, self._trace = recorder, session, trace
        self._names = tuple(names)
        self._patches: dict[str, p.Patches] = {}
        self._first = True

    def install(self) -> None:
        p.gap_zones(self._recorder)
        self._recorder.set_revive(p.revive)
        self._recorder.set_on_env(environments.resets_in_next_step, environments.holds)
        for name in self._names:
            if name == "classes":
                continue
            module = importlib.import_module(f"{__package__}.{name}")
            patches = self._patches[name] = p.Patches(self._recorder, self._noter(name), self._session, self._trace)
            for target in module.MODULES:
                imports.when_imported(target, self._installer(name, module.install, patches))
        if "classes" in self._names:
            self._watch_classes()

    def uninstall(self) -> None:
        for patches in reversed(list(self._patches.values())):
            patches.undo()
        self._patches.clear()
        self._recorder.set_on_env(None, None)
        self._recorder.watch_classes((), None)

    def _installer(self, name: str, install: Callable[..., None], patches: p.Patches) -> Callable[[Any], None]:
        def run(module: Any) -> None:
            try:
                before = patches.count
                install(patches, module)
                self._say(name, "live", f"{module.__name__}: {patches.count - before} hooks")
            except Exception as error:  # a version of the library that we do not know
                self._say(name, "failed", f"{module.__name__}: {type(error).__name__}: {error}")

        return run

    def _noter(self, name: str) -> Callable[[str], None]:
        return lambda text: self._say(name, "note", text)

    def _watch_classes(self) -> None:
        from . import classes, torch

        patches = self._patches["classes"] = p.Patches(self._recorder, self._noter("classes"))
        more: list[Callable[[type], bool]] = []
        if "stable_baselines3" in self._names:
            from . import stable_baselines3

            sb3 = self._patches["stable_baselines3"]
            more.append(lambda cls: stable_baselines3.look_at(sb3, cls))
        is_model = torch.is_module_class if "torch" in self._names else lambda cls: False
        looker = classes.Classes(patches, is_model, self._patches.get("torch", patches), more)

        def look_at(cls: type) -> None:
            try:
                looker.look_at(cls)
            except Exception as error:
                self._say("classes", "note", f"{cls.__module__}.{cls.__qualname__}: {type(error).__name__}: {error}")

        self._recorder.watch_classes(classes.NAMES, look_at)
        self._recorder.set_on_loop(lambda: looker.look_at_functions(classes.script_modules()))

    def _say(self, name: str, state: str, detail: str) -> None:
        """One line in the session, by one write: processes do not get into each other's lines."""
        line = json.dumps({"pid": os.getpid(), "integration": name, "state": state, "detail": detail[:300]}) + "\n"
        try:
            fd = os.open(os.path.join(self._session, HOOKS_FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if os.fstat(fd).st_size < 1 << 18:
                    os.write(fd, line.encode("utf-8", "replace"))
            finally:
                os.close(fd)
        except OSError:
            pass  # the disk is full or the session gone: the hooks work all the same
