"""Facts about the machine, the program and its repository, for `session.json`.

What lives here: reading, with the standard library, what a session must say of itself. Invariant: no value of the
environment is kept, and what follows an argument that looks like a secret is not either.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

_SECRET = re.compile(r"^--?[\w.-]*(key|token|password|passwd|secret|credential)[\w.-]*", re.IGNORECASE)
_HIDDEN = "***"


def redact(arguments: list[str]) -> list[str]:
    """The arguments without what follows `--*key*`, `--*token*`, `--*password*` and the like.

    >>> redact(["train.py", "--api-key", "abc", "--wandb-token=xyz", "--lr", "1"])
    ['train.py', '--api-key', '***', '--wandb-token=***', '--lr', '1']
    """
    out: list[str] = []
    hide = False
    for argument in arguments:
        if hide and not argument.startswith("--"):
            out.append(_HIDDEN)
            hide = False
            continue
        hide = False
        if _SECRET.match(argument):
            name, equals, _ = argument.partition("=")
            out.append(f"{name}={_HIDDEN}" if equals else argument)
            hide = not equals
        else:
            out.append(argument)
    return out


def working_directory() -> str:
    """Empty where somebody has removed it."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def git_commit(start: str) -> dict[str, str] | None:
    """Commit and branch of the repository around `start`, a directory, read from its files."""
    folder = start
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            break
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    try:
        head = _text(os.path.join(git, "HEAD"))
        if not head.startswith("ref: "):
            return {"commit": head}
        ref = head[5:]
        branch = ref.removeprefix("refs/heads/")
        try:
            return {"commit": _text(os.path.join(git, *ref.split("/"))), "branch": branch}
        except OSError:
            for line in _text(os.path.join(git, "packed-refs")).splitlines():
                if line.endswith(" " + ref):
                    return {"commit": line.split()[0], "branch": branch}
    except (OSError, UnicodeDecodeError):
        pass
    return None


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read(1 << 20).strip()


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def describe() -> dict[str, Any]:
    """The machine and the interpreter."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
    }


def loaded_versions(packages: Iterable[str] | None = None) -> dict[str, str]:
    """Versions of those libraries, or of all, that the program has already imported. Nothing of theirs runs for the answer."""
    found = {}
    for name in sorted(x for x in list(sys.modules) if "." not in x) if packages is None else packages:
        module = sys.modules.get(name)
        if issubclass(type(module), ModuleType) and name not in sys.stdlib_module_names:
            version = object.__getattribute__(module, "__dict__").get("__version__")
            if isinstance(version, str):
                found[name] = version
    return found


def cpu_seconds() -> float:
    """Processor time of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def resources(wall_s: float, cpu_s: float) -> dict[str, Any]:
    """What a recording has used of the machine: processor time, the highest resident memory of the process, and the GPU memory
    that torch's allocator counted, where torch is there and has used a device."""
    out: dict[str, Any] = {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    }
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        out["peak_memory_mb"] = peak / 1024 if sys.platform != "darwin" else peak / (1 << 20)
    except (ImportError, OSError):
        pass
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is not None and cuda.is_initialized():
            out["gpu_peak_mb"] = cuda.max_memory_allocated() / (1 << 20)
    except Exception:  # a torch that is half imported, or a device that is gone
        pass
    return out
