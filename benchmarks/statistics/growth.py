"""Exponents: planted, with a fixed cost and 5 % noise; how often the interval holds them and what they are called."""

from __future__ import annotations

import numpy as np
from benchmarks.measure import Table

from hotloop.analyse.scaling import fit_law

SIZES = np.repeat([64.0, 128.0, 256.0, 512.0, 1024.0], 3)
FIXED = (0.0, 0.5, 2.0)  # of what grows, at the smallest size


def fit_exponents(table: Table, count: int) -> None:
    rng = np.random.default_rng(5)
    for b in (0.5, 1.0, 1.2, 2.0):
        inside, called, plain, worst = [], [], [], 1.0
        for fixed in FIXED:
            laws = []
            for _ in range(count // len(FIXED)):
                y = ((SIZES / 1024) ** b + fixed * (64 / 1024) ** b) * np.exp(rng.normal(0, 0.05, len(SIZES)))
                laws.append(fit_law("x", SIZES, y))
                plain.append(np.polyfit(np.log(SIZES), np.log(y), 1)[0])
            hits = [b in law.exponent_bounds for law in laws if law.exponent_bounds]
            worst = min(worst, float(np.mean(hits)))
            inside += hits
            called += [law.growth == "super-linear" for law in laws]
        note = f"({len(inside)} sweeps, worst fixed cost {worst:.1%}; without the fixed cost b reads {np.mean(plain):.2f})"
        table.add(f"b = {b:g}: in the 95 % interval", float(np.mean(inside)), 0.93, "", above=True, note=note)
        share = float(np.mean(called))
        if b <= 1:
            table.add(f"b = {b:g}: called super-linear", share, 0.05, "")
        else:
            table.add(f"b = {b:g}: called super-linear", share, None, "", above=True)
