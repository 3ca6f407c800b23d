"""Worker processes and pools, what is waited for between them, and pauses of the garbage collector.

Invariant: whatever is hooked blocks, or begins or ends a worker.
"""

from __future__ import annotations

from typing import Any

from ..model import role as r
from ..model.adapter import Adapter, Target

_PACKAGES = ("multiprocessing", "concurrent", "socket", "socketserver", "ssl", "selectors", "asyncio", "threading", "queue",
             "subprocess", "websockets", "aiohttp", "zmq", "grpc", "requests", "urllib3", "http", "cloudpickle",
             "pickle")  # fmt: skip
_WAITS = {
    "multiprocessing.connection": ("Connection", "_recv", "pipe"),
    "multiprocessing.popen_fork": ("Popen", "wait", "process"),
    "subprocess": ("Popen", "wait", "process"),
}


def _install(patches: Any, module: Any) -> None:
    if module.__name__ == "gc":
        pause = patches.recorder.gc_pause
        module.callbacks.append(pause)
        patches.count += 1
        patches.later(lambda: module.callbacks.remove(pause))
    else:
        kind, method, what = _WAITS[module.__name__]
        reads = _counting_reads(patches.recorder.count_seen) if what == "pipe" else None
        patches.exchange(getattr(module, kind), method, lambda function: patches.waiting(function, what, reads))


def _counting_reads(count: Any) -> Any:
    """How many bytes come through pipes, by some reads in a hundred; the head of a message, which says its size, is none."""

    def read(args: tuple[Any, ...], result: Any, phase: int) -> None:
        size = args[1] if len(args) > 1 else 0
        if isinstance(size, int) and size > 8:
            count("~pipe_reads")
            count("~pipe_bytes", size)

    return read


ADAPTER = Adapter(
    "workers",
    "IPC",
    packages=_PACKAGES,
    opaque=True,
    targets=(
        Target("multiprocessing.process", "BaseProcess.start", r.WORKER_START),
        *(
            Target(f"concurrent.futures.{pool}", f"{pool.title()}PoolExecutor.{method}", r.WORKER_START)
            for pool in ("thread", "process")
            for method in ("__init__", "shutdown")
        ),
    ),
    modules=("gc", *_WAITS),
    install=_install,
)
