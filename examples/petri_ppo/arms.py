"""Runs arms of the training, each in a fresh process, and answers where their sessions are.

What lives here: the order of the arms, the processes, and the two things an arm can do: record a HotLoop session, or run under
cProfile. torch and TorchRL are imported once, by the server that the arms are forked from; this process never loads them.

Invariant: what is timed is never run under cProfile, which slows Python calls down and torch's kernels not at all.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from settings import Settings


def interleave(pairs: int) -> list[bool]:
    """Turbo off and on in pairs, every second pair turned round (ABBA), so that a drift of the machine hits both alike.

    >>> interleave(2)
    [False, True, True, False]
    """
    return [turbo for pair in range(pairs) for turbo in ((False, True) if pair % 2 == 0 else (True, False))]


@contextmanager
def fresh_processes() -> Iterator[Callable[..., Any]]:
    """A function that runs another in a process of its own and answers its result."""
    folder = str(Path(__file__).resolve().parent)  # the server does not get our sys.path in all versions of Python
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["train"])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def record_arm(settings: Settings, out: Path) -> Path:
    """One arm as a session. The first batch is not part of it: it pays for what torch and TorchRL do once."""
    from train import Trainer

    from hotloop import start, stop

    trainer = Trainer(replace(settings, batches=settings.batches + 1))
    trainer.batch()
    path = start(name=f"petri_ppo_turbo_{'on' if settings.turbo else 'off'}", out=out)
    for _ in range(settings.batches):
        trainer.batch()
    stop()
    return path


def write_functions(settings: Settings, file: Path, top: int = 50) -> None:
    """One arm under cProfile, as text: the functions by cumulative time, who calls them and whom they call."""
    import cProfile
    import io
    import pstats

    from train import Trainer

    trainer = Trainer(replace(settings, batches=settings.batches + 1))
    trainer.batch()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(settings.batches):
        trainer.batch()
    profiler.disable()
    text = io.StringIO()
    print(f"Petri-net PPO, turbo {'ON' if settings.turbo else 'OFF'}, {settings.batches} batches under cProfile.", file=text)
    print(
        "cProfile makes Python calls slower: read shares and call counts here, and seconds in the component breakdown.",
        file=text,
    )
    stats = pstats.Stats(profiler, stream=text).sort_stats("cumulative")
    print(f"\n==== Top {top} functions by cumulative time ====", file=text)
    stats.print_stats(top)
    print(f"==== Call hierarchy: who calls them (top {top}) ====", file=text)
    stats.print_callers(top)
    print(f"==== Call hierarchy: whom they call (top {top}) ====", file=text)
    stats.print_callees(top)
    file.write_text(text.getvalue())
