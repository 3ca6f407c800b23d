"""Runs whose truth is known: six kinds of noise between runs, iterations that resemble their neighbours, components.

What lives here: `make_runs`, which gives what `hotloop ab` would have recorded, in the order it would have run it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hotloop.analyse.changes import WarmUp
from hotloop.analyse.runs import Run
from hotloop.experiment.schedule import make_schedule

Floats = NDArray[np.float64]
Rng = np.random.Generator

SD = 0.02 / np.sqrt(2)  # of one run: the difference within a pair then has 2 %
ITERATIONS = 30
SHARES = {"env_step": 0.4, "policy_forward": 0.2, "backward": 0.25, "log": 0.05, "(untracked)": 0.1}
HOST = {"cpu": "simulated", "usable_cores": 2, "machine": "none", "python": "3"}


def normal(rng: Rng, n: int) -> Floats:
    return rng.normal(0, SD, n)


def skewed(rng: Rng, n: int) -> Floats:
    """Nothing makes a run faster, many things slower."""
    return SD * (rng.exponential(1, n) - 1)


def heavy(rng: Rng, n: int) -> Floats:
    return SD * rng.standard_t(3, n) / np.sqrt(3)


def remembering(rng: Rng, n: int) -> Floats:
    """AR(1) of 0.5 from run to run."""
    noise = rng.normal(0, SD, n)
    for i in range(1, n):
        noise[i] = 0.5 * noise[i - 1] + np.sqrt(0.75) * noise[i]
    return noise


def drifting(rng: Rng, n: int) -> Floats:
    """5 % from the first run to the last."""
    return rng.normal(0, SD, n) + np.linspace(0, np.log(1.05), n)


def bursting(rng: Rng, n: int) -> Floats:
    """One run in ten is disturbed by 10 %."""
    return rng.normal(0, SD, n) + np.where(rng.random(n) < 0.1, np.log(1.1), 0.0)


NOISES: dict[str, Callable[[Rng, int], Floats]] = {
    "normal": normal, "skewed": skewed, "Student t, 3 df": heavy, "AR(1) 0.5 between runs": remembering,
    "drift of 5 %": drifting, "one run in ten +10 %": bursting,
}  # fmt: skip


def make_runs(
    rng: Rng, noise: Callable[[Rng, int], Floats] = normal, pairs: int = 10, slower: dict[str, float] | None = None,
    shares: dict[str, float] = SHARES, whole: float = 1.0,
) -> tuple[list[Run], list[Run]]:  # fmt: skip
    """Pairs of runs in ABBA order; in B the components in `slower` take that many times as long, everything `whole` times."""
    schedule = make_schedule("AB", pairs, int(rng.integers(1 << 30)))
    levels = noise(rng, len(schedule))
    arms: dict[str, list[Run]] = {"A": [], "B": []}
    for slot, level in zip(schedule, levels, strict=True):
        factors = {name: (slower or {}).get(name, 1.0) if slot.arm == "B" else 1.0 for name in shares}
        weights = np.array([shares[name] * factors[name] for name in shares]) * (whole if slot.arm == "B" else 1.0)
        own = np.exp(rng.normal(0, 0.005, len(shares)))  # each component's share varies a little by itself
        parts = weights * own * weights.sum() / (weights * own).sum()
        rows = np.exp(rng.normal(0, 0.1, ITERATIONS)) * 1e6 * weights.sum() * np.exp(level)
        rows *= weights.sum() * np.exp(level) * 1e6 / rows.mean()  # the run's own mean is what the noise says
        components = {name: int(p * np.exp(level) * 1e6 * ITERATIONS) for name, p in zip(shares, parts, strict=True)}
        arms[slot.arm].append(
            Run(
                name=f"{slot.number}", start_s=float(slot.number), unit="env_steps", work=ITERATIONS, all_work=ITERATIONS,
                total_ns=sum(components.values()), components=components, row_ns=rows, row_weights=np.ones(ITERATIONS),
                warm_up=WarmUp(0, 0.0, True, ""), dropped_share=0.0, profiler_share=0.01, host=HOST, script="train.py",
                pair=slot.round,
            )
        )  # fmt: skip
    return arms["A"], arms["B"]
