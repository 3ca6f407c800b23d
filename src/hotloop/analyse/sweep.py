"""A sweep over sizes: every component's law, the total's, and what another size would take.

What lives here: runs of several sizes in, `Sweep` out. Invariant: in every run the components add up to the total; what is
small in all runs is gathered, so that the laws together are the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .compare import OTHERS, SMALL_SHARE
from .runs import OWN, UNTRACKED
from .scaling import Forecast, Law, fit_law, predict_time, summarise_sizes


@dataclass(frozen=True, slots=True)
class Sized:
    """One run of the sweep."""

    size: int
    total_ns: int
    components: dict[str, int]


@dataclass(frozen=True, slots=True)
class Sweep:
    runs: tuple[Sized, ...]
    total: Law
    laws: tuple[Law, ...]  # largest at the largest size first
    prediction: Forecast | None
    shares: tuple[tuple[str, float], ...]  # of the predicted time, by component
    warning: str  # why no exponent is given, if so
    trends: tuple[str, ...]  # what grows within the longest run


def read_sweep(runs: Sequence[Sized], predict: int | None, trends: Sequence[str] = ()) -> Sweep:
    sizes = [run.size for run in runs]
    names = _names(runs)
    total = fit_law("total", sizes, [run.total_ns / 1e9 for run in runs])
    laws = [fit_law(name, sizes, [_held(run, name, names) / 1e9 for run in runs]) for name in names]
    prediction, shares = None, []
    if predict is not None:
        around = predict_time(sizes, [run.total_ns / 1e9 for run in runs], predict)
        best = total.predict(predict)  # by the law that was chosen; the interval is over all that fit
        prediction = Forecast(predict, best, min(best, around.low), max(best, around.high))
        parts = {law.name: max(0.0, law.predict(predict)) for law in laws}
        whole = sum(parts.values()) or 1.0
        shares = sorted(((name, s / whole) for name, s in parts.items()), key=lambda item: -item[1])
    ordered = sorted(laws, key=lambda law: -law.measured_s)
    return Sweep(tuple(runs), total, tuple(ordered), prediction, tuple(shares), summarise_sizes(sizes), tuple(trends))


def _names(runs: Sequence[Sized]) -> list[str]:
    present = sorted({name for run in runs for name in run.components})
    shares = {name: np.max([run.components.get(name, 0) / run.total_ns for run in runs]) for name in present}
    large = [name for name in present if name in (UNTRACKED, OWN) or shares[name] >= SMALL_SHARE]
    return [*large, *([OTHERS] if len(large) < len(present) else [])]


def _held(run: Sized, name: str, names: Sequence[str]) -> int:
    if name != OTHERS:
        return run.components.get(name, 0)
    return run.total_ns - sum(run.components.get(other, 0) for other in names if other != OTHERS)
