"""Worker processes and pools, what is waited for between them, and pauses of the garbage collector.

What lives here: hook points of the standard library. Invariant: whatever is hooked blocks, or begins or ends a worker.
"""

from __future__ import annotations

from typing import Any

from . import _patch as p

MODULES = ("gc", "multiprocessing.connection", "multiprocessing.process", "multiprocessing.popen_fork", "subprocess",
           "concurrent.futures.thread", "concurrent.futures.process")  # fmt: skip


def install(patches: p.Patches, module: Any) -> None:
    name = module.__name__
    if name == "gc":
        pause = patches.recorder.gc_pause
        module.callbacks.append(pause)
        patches.count += 1
        patches.later(lambda: module.callbacks.remove(pause))
    elif name.endswith("connection"):
        patches.exchange(module.Connection, "_recv", lambda f: patches.waiting(f, "pipe"))
    elif name.endswith("popen_fork") or name == "subprocess":
        patches.exchange(module.Popen, "wait", lambda f: patches.waiting(f, "process"))
    elif name.endswith("process") and name.startswith("multiprocessing"):
        patches.wrap(module.BaseProcess, "start", p.WORKER_START)
    else:
        kind = module.ThreadPoolExecutor if name.endswith("thread") else module.ProcessPoolExecutor
        patches.wrap(kind, "__init__", p.WORKER_START)
        patches.wrap(kind, "shutdown", p.WORKER_START)
