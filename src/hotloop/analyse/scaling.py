"""How time grows with size: one law per component, with the interval of its exponent and a check at a size held out.

What lives here: (size, seconds) points in, `Law` out. The laws are a constant, c + a·n, c + a·n·log n, c + a·n^b and two
straight pieces; AICc chooses, the largest size is predicted from the others. Noise is relative: all is fitted to log seconds.
Invariant: "super-linear" is said only where the whole interval of b lies above 1, AICc agrees, and so does the held-out size.

The fixed cost c is part of every law: without it a true exponent of 2 reads 1.77. For given b and c/a the best a is a mean of
logarithms, so the likelihood is looked at on a grid, which cannot get stuck and gives the intervals at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]

CONSTANT, LINEAR, LOGLINEAR, POWER, PIECEWISE = "constant", "linear", "n log n", "power", "piecewise"
LEAST_SIZES, LEAST_REACH, LEAST_RUNS = 5, 16.0, 3
CONFIDENCE = 0.95
_EXPONENTS = np.linspace(0.0, 4.0, 101)
_FIXED = np.concatenate(([0.0], np.geomspace(1e-4, 1e4, 80)))  # c over a·n^b at the geometric middle of the sizes
_TINY = 1e-9  # seconds: below this nothing was measured


@dataclass(frozen=True, slots=True)
class Bounds:
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Law:
    """How one component grows."""

    name: str
    model: str  # the one chosen
    fixed_s: float  # c
    slope_s: float  # a
    exponent: float  # b of the power law, whichever model was chosen
    exponent_bounds: Bounds | None  # None: too few sizes or runs to say
    knee: float  # of the piecewise law, else 0
    slope_after_s: float
    held_out_s: float  # what the smaller sizes predict for the largest
    measured_s: float  # what it took
    agrees: bool | None  # None: too few sizes to hold one out
    growth: str  # "super-linear", "linear", "sub-linear", "constant", "undecided"
    points: tuple[tuple[float, float], ...]

    def predict(self, n: float) -> float:
        """Seconds at a size, by the law that was chosen."""
        if self.model == PIECEWISE and n > self.knee:
            return self.fixed_s + self.slope_s * self.knee + self.slope_after_s * (n - self.knee)
        return self.fixed_s + self.slope_s * float(_shape(self.model, np.array([n]), self.exponent)[0])


@dataclass(frozen=True, slots=True)
class Forecast:
    size: float
    seconds: float
    low: float
    high: float


def fit_law(name: str, sizes: ArrayLike, seconds: ArrayLike) -> Law:
    """The law of one component.

    >>> n = np.repeat([64.0, 128.0, 256.0, 512.0, 1024.0], 3)
    >>> law = fit_law("x", n, 2 + 0.001 * n**2 * np.tile([1.0, 1.01, 0.99], 5))
    >>> law.growth, law.model, 1.9 < law.exponent < 2.1
    ('super-linear', 'power', True)
    """
    n, y = np.asarray(sizes, np.float64), np.maximum(np.asarray(seconds, np.float64), _TINY)
    distinct = np.unique(n)
    points = tuple((float(a), float(b)) for a, b in zip(n, y, strict=True))
    measured = float(np.exp(np.log(y[n == distinct[-1]]).mean()))
    if len(distinct) < 3:  # a slope, and no law
        slope = math.log(measured / float(np.exp(np.log(y[n == distinct[0]]).mean()))) / math.log(distinct[-1] / distinct[0])
        scale = measured / distinct[-1] ** slope
        return Law(name, POWER, 0.0, scale, slope, None, 0.0, 0.0, measured, measured, None, "undecided", points)
    surface = _Surface(n, y)
    enough = is_enough(n)
    bounds = surface.exponent_bounds() if enough else None
    model, parts = _choose(surface, n, y)
    held, agrees = _hold_out(n, y, measured) if len(distinct) >= 4 else (measured, None)
    fixed, slope, knee, after = parts
    exponent = {CONSTANT: 0.0, LINEAR: 1.0}.get(model, surface.exponent) if bounds is None else surface.exponent
    growth = _name_growth(model, bounds, agrees, float(y.max() / y.min()))
    return Law(name, model, fixed, slope, exponent, bounds, knee, after, held, measured, agrees, growth, points)


def is_enough(sizes: ArrayLike) -> bool:
    """Are there five sizes over a factor of 16, three runs each?"""
    distinct, counts = np.unique(np.asarray(sizes, np.float64), return_counts=True)
    return len(distinct) >= LEAST_SIZES and distinct[-1] / distinct[0] >= LEAST_REACH and int(counts.min()) >= LEAST_RUNS


def predict_time(sizes: ArrayLike, seconds: ArrayLike, size: float) -> Forecast:
    """The time at another size, over all power laws that fit about as well as the best."""
    n, y = np.asarray(sizes, np.float64), np.maximum(np.asarray(seconds, np.float64), _TINY)
    surface = _Surface(n, y)
    best, bounds = surface.predict(size)
    return Forecast(size, best, bounds.low, bounds.high)


def _name_growth(model: str, bounds: Bounds | None, agrees: bool | None, spread: float) -> str:
    if bounds is None or agrees is None:
        return "undecided"
    if bounds.low > 1:
        return "super-linear" if agrees and model not in (CONSTANT, LINEAR) else "undecided"
    if bounds.high < 1:
        return "sub-linear"
    if bounds.low > 0.5 or spread > 2:
        return "linear" if 1.0 in bounds and bounds.high - bounds.low < 1 else "undecided"
    return "constant" if spread < 1.5 else "undecided"


# ---- c + a·n^b on a grid of b and c ----


class _Surface:
    """Squared residuals of log seconds over exponent and share of the fixed cost, finer and finer around the least."""

    def __init__(self, n: Floats, y: Floats) -> None:
        self.middle = float(np.exp(np.log(n).mean()))
        self.distinct, inverse = np.unique(n, return_inverse=True)
        self.count = len(y)
        log = np.log(y)
        self._weights = np.bincount(inverse).astype(np.float64)
        self._means = np.bincount(inverse, log) / self._weights
        self._within = float(((log - self._means[inverse]) ** 2).sum())
        self._look(_EXPONENTS, _FIXED)
        for _ in range(4):
            box = self._around()
            self._look(*box)
            if np.count_nonzero((self.squares <= self._limit()).any(axis=1)) > 20:
                break

    def _look(self, exponents: Floats, fixed: Floats) -> None:
        self.exponents, self.fixed = exponents, fixed
        shapes = np.log(fixed[None, :, None] + ((self.distinct / self.middle) ** exponents[:, None])[:, None, :])
        rest = self._means - shapes
        self.scale = rest @ self._weights / self._weights.sum()  # log a, at the middle
        self.squares = self._within + ((rest - self.scale[..., None]) ** 2) @ self._weights
        self.at = np.unravel_index(int(self.squares.argmin()), self.squares.shape)

    def _around(self) -> tuple[Floats, Floats]:
        """A finer grid over what may still be inside, and a cell more."""
        rows, columns = np.nonzero(self.squares <= self.least + 4 * (self._limit() - self.least))
        low, high = max(0, rows.min() - 1), min(len(self.exponents) - 1, rows.max() + 1)
        exponents = np.linspace(self.exponents[low], self.exponents[high], 161)
        left, right = max(1, columns.min() - 1), min(len(self.fixed) - 1, max(2, columns.max() + 1))
        fixed = np.geomspace(self.fixed[left], self.fixed[right], 120)
        return exponents, np.concatenate(([0.0], fixed)) if self.fixed[0] == 0 and columns.min() <= 1 else fixed

    @property
    def exponent(self) -> float:
        return float(self.exponents[self.at[0]])

    @property
    def least(self) -> float:
        return max(float(self.squares[self.at]), 1e-12)

    @property
    def freedom(self) -> int:
        return max(1, self.count - 3)

    def _limit(self, extra: int = 1) -> float:
        """Up to here the squares are within the confidence region."""
        return self.least * (1 + extra * float(special.fdtri(extra, self.freedom, CONFIDENCE)) / self.freedom)

    def exponent_bounds(self) -> Bounds:
        """The profile likelihood's interval, between grid points by a straight line."""
        profile = self.squares.min(axis=1)
        inside = np.flatnonzero(profile <= self._limit())
        first, last = int(inside[0]), int(inside[-1])
        return Bounds(self._cross(profile, first, first - 1), self._cross(profile, last, last + 1))

    def _cross(self, profile: Floats, inside: int, outside: int) -> float:
        here = float(self.exponents[inside])
        if not 0 <= outside < len(profile):
            return here
        share = (self._limit() - profile[inside]) / (profile[outside] - profile[inside])
        return here + float(share) * (float(self.exponents[outside]) - here)

    def parts(self) -> tuple[float, float]:
        """c and a of the best law."""
        b, share = self.exponent, float(self.fixed[self.at[1]])
        scale = math.exp(float(self.scale[self.at]))
        return scale * share, scale / self.middle**b

    def predict(self, size: float) -> tuple[float, Bounds]:
        with np.errstate(over="ignore"):
            values = self.scale + np.log(self.fixed[None, :] + (size / self.middle) ** self.exponents[:, None])
        noise = float(special.stdtrit(self.freedom, 0.5 + CONFIDENCE / 2)) * math.sqrt(self.least / self.freedom)
        inside = values[self.squares <= self._limit()]
        best = float(values[self.at])
        # One further run scatters around the law as the others did.
        low = best - math.hypot(best - float(inside.min()), noise)
        high = best + math.hypot(float(inside.max()) - best, noise)
        return _exp(best), Bounds(_exp(low), _exp(high))


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


# ---- the choice of a law ----


def _shape(model: str, n: Floats, exponent: float) -> Floats:
    if model == CONSTANT:
        return np.zeros_like(n)
    if model == LOGLINEAR:
        return n * np.log2(np.maximum(n, 1.0))
    return n if model in (LINEAR, PIECEWISE) else n**exponent


def _choose(surface: _Surface, n: Floats, y: Floats) -> tuple[str, tuple[float, float, float, float]]:
    """By AICc; a law with fewer parameters wins where they do not differ by 2."""
    count = len(y)
    log = np.log(y)
    fits: dict[str, tuple[float, int, tuple[float, float, float, float]]] = {}
    level = float(log.mean())
    fits[CONSTANT] = (float(((log - level) ** 2).sum()), 2, (math.exp(level), 0.0, 0.0, 0.0))
    for model in (LINEAR, LOGLINEAR):
        fits[model] = _fit_line(_shape(model, n, 1.0), log)
    fits[POWER] = (surface.least, 4, (*surface.parts(), 0.0, 0.0))
    inner = surface.distinct[1:-1]
    if len(surface.distinct) >= LEAST_SIZES and count >= 10:
        fits[PIECEWISE] = min((_fit_pieces(n, y, float(knee)) for knee in inner), key=lambda fit: fit[0])
    scores = {}
    for model, (squares, parameters, _) in fits.items():
        spare = count - parameters - 1
        if spare > 0:
            correction = 2 * parameters * (parameters + 1) / spare
            scores[model] = count * math.log(max(squares, 1e-12) / count) + 2 * parameters + correction
    best = min(scores.values())
    for model in (CONSTANT, LINEAR, LOGLINEAR, POWER, PIECEWISE):
        if scores.get(model, math.inf) <= best + 2:
            return model, fits[model][2]
    raise AssertionError("one of them is the best")


def _fit_line(shape: Floats, log: Floats) -> tuple[float, int, tuple[float, float, float, float]]:
    """c + a·shape, on the grid of c's share."""
    middle = float(np.exp(np.log(shape).mean()))
    fixed = _FIXED
    for _ in range(3):
        rest = log - np.log(fixed[:, None] + shape / middle)
        scale = rest.mean(1)
        squares = ((rest - scale[:, None]) ** 2).sum(1)
        i = int(squares.argmin())
        best = float(squares[i]), math.exp(float(scale[i])), float(fixed[i])
        near = fixed[max(0, i - 1)], fixed[min(len(fixed) - 1, i + 1)]
        fixed = np.linspace(*near, 41)  # from zero on where the least is there
    least, a, share = best
    return least, 3, (a * share, a / middle, 0.0, 0.0)


def _fit_pieces(n: Floats, y: Floats, knee: float) -> tuple[float, int, tuple[float, float, float, float]]:
    """Two straight pieces that meet at the knee, by least squares of the relative error."""
    from scipy.optimize import nnls

    design = np.stack((np.ones_like(n), np.minimum(n, knee), np.maximum(n - knee, 0.0)), 1) / y[:, None]
    (c, a, after), _ = nnls(design, np.ones_like(y))
    fitted = np.maximum(c + a * np.minimum(n, knee) + after * np.maximum(n - knee, 0.0), _TINY)
    return float(((np.log(y) - np.log(fitted)) ** 2).sum()), 5, (float(c), float(a), knee, float(after))


def _hold_out(n: Floats, y: Floats, measured: float) -> tuple[float, bool]:
    """What the smaller sizes say about the largest, and whether it is so."""
    kept = n < n.max()
    best, bounds = _Surface(n[kept], y[kept]).predict(float(n.max()))
    return best, measured in bounds


def summarise_sizes(sizes: Sequence[float]) -> str:
    """Why no law is named, if that is so."""
    distinct = sorted(set(sizes))
    if len(distinct) < 3:
        return f"two sizes give a slope and no law; give at least {LEAST_SIZES} sizes over a factor of {LEAST_REACH:g}"
    if not is_enough(np.array(sizes)):
        seen = f"{len(distinct)} sizes over a factor of {distinct[-1] / distinct[0]:.3g}"
        return f"{seen}; an exponent needs {LEAST_SIZES} over {LEAST_REACH:g}, {LEAST_RUNS} runs each"
    return ""
