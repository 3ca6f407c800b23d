"""What training prints of itself while it runs: the rollout's timing every N iterations, the summary every N env steps.

What lives here: the callback of `step()`. Invariant: only when asked for; what it takes is charged to the profiler.
"""

from __future__ import annotations

from types import ModuleType


class Announcer:
    """Called at the end of each iteration."""

    def __init__(self, recorder: ModuleType, print_every: int = 0, summary_every: int = 0) -> None:
        self._recorder = recorder
        self._print_every, self._summary_every = max(0, print_every), max(0, summary_every)
        self._next_summary = self._summary_every

    def __call__(self, iterations: int, env_steps: int) -> None:
        rollout = self._print_every and iterations % self._print_every == 0
        done = env_steps or iterations  # a loop that counts no env steps counts its iterations
        summary = self._summary_every and done >= self._next_summary
        if not rollout and not summary:
            return
        from ..store.shard import decode
        from .blocks import rollout_block
        from .summary import Summary

        self._recorder.charge()  # the imports were ours, too
        shard = decode(self._recorder.snapshot())
        if rollout:
            print(rollout_block(shard, self._print_every), flush=True)
        if summary:
            print(Summary(shard).text(), flush=True)
            self._next_summary = (done // self._summary_every + 1) * self._summary_every
