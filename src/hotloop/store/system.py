"""`system.jsonl`: what the sidecar saw of the machine, one sample a line.

What lives here: reading it, by the standard library, since training shows these numbers itself. Invariant: a line that is not
a sample (cut off, or by anyone else) is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

SYSTEM_FILE = "system.jsonl"
MOST_SAMPLES = 4096
_MOST_BYTES = 4 << 20
NUMBERS = (
    "unix_s", "seconds", "cpu_percent", "rss_mb", "processes", "machine_cpu_percent", "machine_memory_percent", "cores",
    "gpu_percent", "gpu_memory_mb",
)  # fmt: skip


def read_samples(session: str | os.PathLike[str]) -> list[dict[str, float]]:
    """The samples of a session, in order; none if there is no sidecar."""
    path = os.path.join(session, SYSTEM_FILE)
    try:
        if os.path.islink(path):
            return []
        with open(path, "rb") as file:
            lines = file.read(_MOST_BYTES).split(b"\n")
    except OSError:
        return []
    samples = []
    for line in lines[: 2 * MOST_SAMPLES]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            numbers = {key: float(row[key]) for key in NUMBERS if type(row.get(key)) in (int, float) and 0 <= row[key] < 1e15}
            if "unix_s" in numbers and numbers.get("seconds", 0.0) > 0:
                samples.append(numbers)
    return samples


def summarise(samples: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Means weighted by the time each sample stands for, and peaks."""
    out: dict[str, Any] = {}
    for key, name in (("cpu_percent", "cpu"), ("rss_mb", "rss"), ("gpu_percent", "gpu"), ("gpu_memory_mb", "gpu_memory")):
        rows = [(row[key], row["seconds"]) for row in samples if key in row]
        if rows:
            out[f"{name}_mean"] = sum(value * weight for value, weight in rows) / sum(weight for _, weight in rows)
            out[f"{name}_peak"] = max(value for value, _ in rows)
    if samples:
        out["samples"] = len(samples)
        out["sampled_s"] = sum(row["seconds"] for row in samples)
    return out
