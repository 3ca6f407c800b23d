"""Installing the hooks: which adapters, when, and what became of them.

What lives here: the one function `run.child` calls. Invariant: whatever fails is a note in the session (`hooks.jsonl`), never
an exception in the script; `uninstall()` leaves nothing behind.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..adapters import ADAPTERS
from ..model.adapter import OWNS, Adapter
from ..record import imports
from ..record.host import loaded_versions
from ..store.schema import HOOKS_FILE
from . import _patch as p
from . import classes, environments

if TYPE_CHECKING:
    from ..model.trace import TraceSettings

INTEGRATIONS = (*(adapter.name for adapter in ADAPTERS if adapter.waits_for), "classes")


class Hooks:
    """The hooks of this process. `others`: adapters of other packages, "module:object" by the library they are for."""

    def __init__(
        self,
        recorder: Any,
        session: str,
        names: Iterable[str] = INTEGRATIONS,
        trace: TraceSettings | None = None,
        others: Mapping[str, str] | None = None,
    ) -> None:
        self._recorder, self._session, self._trace = recorder, session, trace
        self._names, self._others = tuple(names), others or {}
        self._patches: dict[str, p.Patches] = {}
        self._late: list[Callable[[Any], bool]] = []  # is it an environment that resets itself a step late?
        self._kinds: list[Callable[[type], bool]] = []  # is it a class that an adapter has dealt with?
        self._classes: classes.Classes | None = None
        self._methods: tuple[str, ...] = ()

    def install(self) -> None:
        p.gap_zones(self._recorder)
        self._recorder.set_revive(p.revive)
        self._recorder.set_on_env(lambda env: any(asks(env) for asks in self._late), environments.holds)
        for adapter in ADAPTERS:
            self._add(adapter, hooks=adapter.name in self._names)
        if "classes" in self._names:
            self._watch_classes()
        for library, where in self._others.items():
            imports.when_imported(library, self._loader(library, where), before=True)

    def uninstall(self) -> None:
        for patches in reversed(list(self._patches.values())):
            patches.undo()
        self._patches.clear()
        self._recorder.set_on_env(None, None)
        self._recorder.watch_classes((), None)

    # ---- adapters ----

    def _add(self, adapter: Adapter, hooks: bool = True) -> None:
        if adapter.resets_in_next_step is not None:
            self._late.append(self._asking(adapter, adapter.resets_in_next_step))
        if not hooks:
            return
        patches = self._patches[adapter.name] = self._make_patches(adapter.name)
        if adapter.kinds:
            self._watch(*(name for kind in adapter.kinds for name in kind.methods))
            self._kinds.append(self._asking(adapter, lambda cls: classes.hook_kinds(patches, adapter, cls)))
        for module in adapter.waits_for:
            imports.when_imported(module, self._installer(adapter, patches))

    def _loader(self, library: str, where: str) -> Callable[[Any], None]:
        """What brings in another package's adapter, right before the first line of its library."""

        def load(module: Any) -> None:
            try:
                path, _, name = where.partition(":")
                adapter = getattr(importlib.import_module(path), name)
                if not isinstance(adapter, Adapter):
                    raise TypeError("that is no Adapter")
                if adapter.name in self._patches:
                    raise ValueError(f"there is an adapter of the name {adapter.name} already")
                self._say(adapter.name, OWNS, f"{adapter.owner}: {' '.join(adapter.packages)}")
                self._add(adapter)
                if self._classes is not None:
                    self._classes.opaque.update(adapter.packages if adapter.opaque else ())
            except (Exception, SystemExit) as error:
                self._say(library, "failed", f"{where}: {type(error).__name__}: {error}")

        return load

    def _installer(self, adapter: Adapter, patches: p.Patches) -> Callable[[Any], None]:
        def run(module: Any) -> None:
            name = module.__name__
            try:
                before = patches.count
                patches.apply(adapter, module)
                versions = [f", {package} {version}" for package, version in loaded_versions(adapter.packages).items()]
                self._say(adapter.name, "live", "".join((f"{name}: {patches.count - before} hooks", *versions)))
            except Exception as error:  # a version of the library that we do not know
                known = f" (tried with {adapter.tried})" if adapter.tried else ""
                self._say(adapter.name, "failed", f"{name}: {type(error).__name__}: {error}{known}")

        return run

    def _asking(self, adapter: Adapter, question: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """A question to an adapter; where it fails the answer is no, and the first time that is said."""
        failed = False

        def ask(what: Any) -> bool:
            nonlocal failed
            try:
                return question(what)
            except Exception as error:
                if not failed:
                    self._say(adapter.name, "failed", f"{type(error).__name__}: {error}")
                failed = True
                return False

        return ask

    def _make_patches(self, name: str) -> p.Patches:
        return p.Patches(self._recorder, lambda text: self._say(name, "note", text), self._session, self._trace)

    # ---- classes ----

    def _watch_classes(self) -> None:
        patches = self._patches["classes"] = self._make_patches("classes")
        is_model = classes.is_model if "torch" in self._names else lambda cls: False
        looker = self._classes = classes.Classes(patches, is_model, self._patches.get("torch", patches), self._kinds)
        self._watch(*classes.NAMES)
        self._recorder.set_on_loop(lambda: looker.look_at_functions(classes.script_modules()))

    def _watch(self, *methods: str) -> None:
        """Look at classes that define one of these too."""
        self._methods = tuple(dict.fromkeys((*self._methods, *methods)))
        if self._classes is not None:
            self._recorder.watch_classes(self._methods, self._look_at)

    def _look_at(self, cls: type) -> None:
        try:
            if self._classes is not None:
                self._classes.look_at(cls)
        except Exception as error:
            self._say("classes", "note", f"{cls.__module__}.{cls.__qualname__}: {type(error).__name__}: {error}")

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
