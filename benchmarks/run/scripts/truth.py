"""What the scripts beside this file know about themselves: the length of their loop, their phases by hand, their results.

A script calls `start` before its first environment step, `stop` when training is over, and `enter(phase)` wherever a careful
reader would say that a new phase begins. Invariant: the phases follow one another without a gap, so they sum to the loop.
Unless HAND_TIMES=1, `enter` does nothing, and the scripts are ordinary training scripts.

Storing a transition is collect; advantages, minibatches and target updates are learn; scalars and prints are log.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time


class Truth:
    def __init__(self) -> None:
        self.by_hand = os.environ.get("HAND_TIMES") == "1"
        self._phases: dict[str, float] = {}
        self._phase = ""
        self._since = self._begin = self._cpu_begin = 0.0
        self._loop_s = self._loop_cpu_s = 0.0
        self._results: list[float] = []
        self._weights = b""
        if not self.by_hand:
            self.enter = lambda phase: ""

    def start(self, phase: str = "collect") -> None:
        self._phase = phase
        self._cpu_begin = time.process_time()
        self._begin = self._since = time.perf_counter()

    def enter(self, phase: str) -> str:
        """Answers the phase that ended, for going back to it."""
        now = time.perf_counter()
        before = self._phase
        self._phases[before] = self._phases.get(before, 0.0) + now - self._since
        self._phase, self._since = phase, now
        return before

    def keep(self, *results: float) -> None:
        """Losses and returns that another run must repeat to the last bit."""
        self._results.extend(map(float, results))

    def keep_weights(self, parameters) -> None:
        self._weights += b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in parameters)

    def stop(self) -> None:
        self.enter("")
        self._loop_s = time.perf_counter() - self._begin
        self._loop_cpu_s = time.process_time() - self._cpu_begin

    def tell(self, **facts: object) -> None:
        """The last lines of the script."""
        for name, value in facts.items():
            print(f"{name}={value if isinstance(value, (int, float, str)) else json.dumps(value)}")
        if len(self._phases) > 1:  # a script without phases has nothing to compare with
            print(f"hand {json.dumps(self._phases)}")
        results = struct.pack(f"<{len(self._results)}d", *self._results)
        digest = hashlib.sha256(results + self._weights).hexdigest()
        print(f"results={len(self._results)}")
        print(f"loop_cpu_seconds={self._loop_cpu_s:.6f}")
        print(f"loop_began={self._begin:.6f}")
        print(f"loop_seconds={self._loop_s:.6f}")
        print(f"digest={digest}", flush=True)
