"""How the benchmarks measure: everything in one run, in turns, as ratios.

The machines are shared and noisy, so no absolute time means much. Each round times every variant once; a ratio is formed
within a round, and the median over the rounds is reported with its quartiles.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field


def clean_env() -> dict[str, str]:
    """Without what the caller set for HotLoop."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOTLOOP")}


def time_per_item(function: Callable[[int], None], items: int) -> float:
    """Nanoseconds per item."""
    begin = time.perf_counter_ns()
    function(items)
    return (time.perf_counter_ns() - begin) / items


def rounds(variants: dict[str, tuple[Callable[[int], None], int]], count: int) -> dict[str, list[float]]:
    """`count` rounds over all variants, in turns; nanoseconds per item for each."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for function, items in variants.values():
        function(min(items, 2000))  # warm up
    for _ in range(count):
        for name, (function, items) in variants.items():
            times[name].append(time_per_item(function, items))
    return times


@dataclass
class Table:
    """Rows of `what | measured | wanted`, printed and, with --json FILE, written."""

    title: str
    rows: list[dict[str, object]] = field(default_factory=list)

    def add(self, what: str, value: float, bar: float | None, unit: str = "×", above: bool = False, note: str = "") -> None:
        ok = None if bar is None else (value >= bar if above else value <= bar)
        self.rows.append({"what": what, "value": value, "bar": bar, "above": above, "unit": unit, "ok": ok, "note": note})

    def show(self) -> int:
        """Print; answers 1 if what was wanted was missed."""
        print(self.title)
        for row in self.rows:
            sign = "≥" if row["above"] else "≤"
            bar = "" if row["bar"] is None else f"(wanted {sign} {row['bar']:g})"
            mark = {True: "ok  ", False: "MISS", None: "    "}[row["ok"]]  # type: ignore[index]
            print(f"  {mark} {row['what']:<58} {row['value']:>10.3f} {row['unit']:<4} {bar} {row['note']}")
        if "--json" in sys.argv:
            with open(sys.argv[sys.argv.index("--json") + 1], "w") as file:
                json.dump({"title": self.title, "rows": self.rows}, file, indent=1)
        return int(any(row["ok"] is False for row in self.rows))


def median_ratio(over: list[float], under: list[float]) -> tuple[float, str]:
    """Median of the ratios round by round, and their quartiles as a note."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return middle, f"quartiles {low:.3f}–{high:.3f}"
