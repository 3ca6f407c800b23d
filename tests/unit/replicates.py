"""Runs made by hand."""

from __future__ import annotations

import numpy as np

from hotloop.analyse.changes import WarmUp
from hotloop.analyse.runs import Run

HOST = {"cpu": "one", "usable_cores": 2, "machine": "x", "python": "3.11", "release": "6"}


def run(number: int, components: dict[str, int], work: int = 100, pair: int | None = None, **more) -> Run:
    """One run; `components` in nanoseconds."""
    total = sum(components.values())
    values = {
        "name": f"run{number}", "start_s": float(number), "unit": "env_steps", "work": work, "all_work": work,
        "total_ns": total, "components": components, "row_ns": np.full(10, total / work), "row_weights": np.ones(10),
        "warm_up": WarmUp(3, 0.0, True, ""), "left_out": 3, "dropped_share": 0.0, "profiler_share": 0.01, "host": HOST,
        "script": "train.py", "pair": pair, "spans": components,
    }  # fmt: skip
    return Run(**{**values, **more})


def arms(ratio: float, n: int = 10, spread: float = 0.01, seed: int = 0, **more) -> tuple[list[Run], list[Run]]:
    """Pairs in ABBA order; B's `env_step` takes `ratio` times as long, `log` the same."""
    rng = np.random.default_rng(seed)
    a, b = [], []
    for pair in range(n):
        first = pair % 2 == 0
        for is_b in (not first, first):
            level = float(np.exp(rng.normal(0, spread)))
            parts = {"env_step": int(8e6 * level * (ratio if is_b else 1)), "log": int(2e6 * level), "(untracked)": 1001}
            (b if is_b else a).append(run(2 * pair + (is_b == first), parts, pair=pair, **more))
    return a, b
