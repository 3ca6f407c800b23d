"""What one span costs, measured in this process: the part inside its own time, and the part its parent sees.

What lives here: a short measurement at start (about 3 ms) on a recording in memory that is thrown away.
Invariant: nothing of it is left in the session but three numbers.
"""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

BATCHES = 15


def span_costs(recorder: ModuleType, options: dict[str, Any]) -> tuple[int, int, int]:
    """(inside, outside, standard deviation of their sum) in picoseconds per span."""
    spans = 1000 if recorder.NATIVE else 100
    recorder.open(**{**options, "directory": None, "armed": False, "budget": 8 << 20, "ring_events": 1024, "log_events": 0})
    zone = "hotloop.calibration"
    profile, clock = recorder.profile, time.perf_counter_ns
    bare, spanned = [], []
    for _ in range(BATCHES + 1):
        begin = clock()
        for _ in range(spans):
            pass
        middle = clock()
        for _ in range(spans):
            with profile(zone):
                pass
        spanned.append((clock() - middle) / spans)
        bare.append((middle - begin) / spans)
    inside = _mean_duration(recorder.snapshot(), zone)
    recorder.close()
    loop, _ = _calm(bare)
    whole, error = _calm(spanned)
    total = max(0.0, whole - loop)
    inside = min(inside, total)
    return round(inside * 1000), round((total - inside) * 1000), round(error * 1000)


def _calm(batches: list[float]) -> tuple[float, float]:
    """Mean and standard deviation of the lower half: a preempted batch is slow, never fast. The first one is warm-up."""
    calm = sorted(batches[1:])[: len(batches) // 2]
    mean = sum(calm) / len(calm)
    return mean, (sum((x - mean) ** 2 for x in calm) / (len(calm) - 1)) ** 0.5


def _mean_duration(snapshot: bytes, name: str) -> float:
    """Median duration from the histogram would be too coarse: the mean of all but the longest."""
    from ..store.shard import decode

    shard = decode(snapshot)
    for node in shard.nodes:
        if shard.labels[shard.paths[node.path].label].name == name and node.count > 1:
            return (node.total_ns - node.max_ns) / (node.count - 1)
    return 0.0
