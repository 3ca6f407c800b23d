"""The script's own classes, and those of libraries, recognised by what they can do.

What lives here: an object with `reset` and `step(action)` is an environment, one with `step(action)` alone is one if what it
returns shows it, one with `sample` and a way to add is a replay
buffer, the public methods of an `nn.Module` are model calls, a method called `evaluate` is evaluation. Each class is looked at
once, when it is made. Invariant: only methods a class defines itself are exchanged, and only plain functions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ..adapters import ADAPTERS
from ..model import role as r
from ..model.adapter import Adapter
from . import _patch as p

# What a class must define for us to look at it; `__init__` because a model may define nothing else we know.
NAMES = ("step", "reset", "sample", "forward", "evaluate", "__init__", "step_wait")
STORES = ("add", "push", "append", "store", "put", "remember", "insert", "extend", "store_transition", "add_transition",
          "add_batch")  # fmt: skip
SAMPLES = ("sample", "sample_batch", "get_batch", "sample_minibatch", "sample_transitions")
_EVALUATES = re.compile(
    r"_?(run_)?(eval|evaluate|evaluation|validate|validation)(_(policy|agent|model|net|network|actor|episodes?|loop|run|env))?"
    r"|test_(agent|policy|model)"
)
_ADVANTAGES = re.compile(
    r"_?((compute|calc|calculate|estimate)_)?(gae|gae_advantages?|advantages?|returns|discounted_returns?|discount_rewards|"
    r"returns_and_advantages?|advantages_and_returns|rewards?_to_go)"
)
_BEGINS = ("reset", "observe", "new_episode", "start_episode", "begin_episode", "new_game", "restart")
_NO_ENV = re.compile(r"Schedul|Noise|Timer|Meter|Counter|Optimi[sz]er|Tracker|Buffer|Progress|Metric|Stat|Logger|Clock", re.I)
_NO_BASES = frozenset(("torch", "tensorflow", "keras", "optax", "transformers"))
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3")
# Packages without an adapter that define no environments, models or buffers of a training loop.
_OTHERS = (
    "pandas", "matplotlib", "sympy", "networkx", "jinja2", "yaml", "PIL", "cv2", "google", "absl", "rich", "click", "psutil",
    "pygments", "typing", "typing_extensions", "collections", "abc", "enum", "dataclasses", "unittest", "urllib", "email",
    "xml", "json", "re", "ast", "inspect", "importlib", "ctypes", "hotloop", "pytest", "_pytest", "pluggy", "hypothesis",
    "setuptools", "pkg_resources", "markdown", "werkzeug", "filelock", "fsspec", "mpmath",
)  # fmt: skip


class Classes:
    """Looks at classes as they are made, and once at the functions of the script."""

    def __init__(
        self, patches: p.Patches, is_model: Callable[[type], bool], torch: p.Patches, more: list[Callable[[type], bool]]
    ) -> None:
        self._patches, self._torch = patches, torch
        self._models = patches.part("traced")
        self._is_model = is_model
        self._more = more  # of adapters: True when the class is dealt with
        self.opaque = {*_OTHERS, *(package for adapter in ADAPTERS if adapter.opaque for package in adapter.packages)}

    def look_at(self, cls: type) -> None:
        if _package(cls) in self.opaque or any(known(cls) for known in self._more):
            return
        methods = {name: value for name, value in vars(cls).items() if p.is_plain(value)}
        if is_env(cls):
            self._env(cls, methods)
        elif self._is_model(cls):
            self._model(cls, methods)
        else:
            self._other(cls, methods)
            if "step" in methods and may_be_env(cls):
                self._patches.try_out(cls, "step")

    def _env(self, cls: type, methods: dict[str, Any]) -> None:
        for name, role in (("step", r.STEP), ("reset", r.RESET), ("step_wait", r.STEP), ("render", r.RENDER)):
            if name in methods:
                self._patches.wrap(cls, name, role)

    def _model(self, cls: type, methods: dict[str, Any]) -> None:
        """`forward` goes through `__call__`, which torch's integration hooks."""
        base: Any = sys.modules["torch"].nn.Module
        for name in methods:
            if not name.startswith("_") and name != "forward" and not hasattr(base, name):
                self._models.wrap(cls, name, r.FORWARD, self._torch.looker(name) if self._torch.looker else None, p.EVERY)

    def _other(self, cls: type, methods: dict[str, Any]) -> None:
        stores = [name for name in STORES if callable(getattr(cls, name, None))]
        samples = [name for name in SAMPLES if callable(getattr(cls, name, None))]
        if stores and samples and not hasattr(cls, "log_prob"):
            for name in (*stores, *samples):
                if name in vars(cls) and isinstance(vars(cls)[name], FunctionType):
                    self._patches.wrap(cls, name, r.SAMPLE if name in samples else r.STORE)
        for name in methods:
            self._function(cls, name)

    def _function(self, owner: Any, name: str) -> None:
        if _EVALUATES.fullmatch(name):
            self._patches.wrap(owner, name, r.MAYBE_COLLECT if _is_running(getattr(owner, name)) else r.MAYBE_EVALUATE)
        elif _ADVANTAGES.fullmatch(name):
            self._patches.wrap(owner, name, r.ADVANTAGE)

    def look_at_functions(self, modules: list[Any]) -> None:
        """Functions of the script's modules, by their names; called when its loop begins."""
        for module in modules:
            for name, value in list(vars(module).items()):
                if p.is_plain(value) and value.__module__ == module.__name__:
                    self._function(module, name)


def is_model(cls: type) -> bool:
    """A class of models the script or a library defines; torch itself is not looked into."""
    module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
    return module is not None and issubclass(cls, module)


def is_env(cls: type) -> bool:
    """Has `reset` (or another way to begin), and a `step` that takes an action."""
    return any(callable(getattr(cls, name, None)) for name in _BEGINS) and _steps(cls)


def may_be_env(cls: type) -> bool:
    """Has a `step` that takes an action, and nothing to begin with: it may reset itself. Optimizers and schedulers are none."""
    return _steps(cls) and not any(_package(base) in _NO_BASES for base in cls.__mro__)


def hook_kinds(patches: p.Patches, adapter: Adapter, cls: type) -> bool:
    """What an adapter says of a class; True if there is nothing more to say about it."""
    bases = {base.__name__ for base in cls.__mro__ if _package(base) in adapter.packages}
    if not bases:
        return False
    theirs = _package(cls) in adapter.packages
    kinds = [kind for kind in adapter.kinds if (kind.derived or theirs) and (not kind.base or kind.base in bases)]
    for name, role in ((name, role) for kind in kinds for name, role in kind.methods.items()):
        if callable(vars(cls).get(name)):
            patches.wrap(cls, name, role)
    return any(kind.derived for kind in kinds)


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _steps(cls: type) -> bool:
    step = getattr(cls, "step", None)
    if not callable(step) or _NO_ENV.search(cls.__name__):
        return False
    code = getattr(step, "__code__", None)
    return code is None or code.co_argcount >= 2 or bool(code.co_flags & 0x04)


def _is_running(function: Any) -> bool:
    """Is it being called, on this thread?"""
    frame, code = sys._getframe(), getattr(function, "__code__", None)
    while frame.f_code is not code and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code is code


def script_modules() -> list[Any]:
    """The main module and what was imported from beside it: nothing that is installed."""
    found = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and not _INSTALLED.search(file) and module.__name__.partition(".")[0] != "hotloop":
            found.append(module)
    return found
