"""What if a part of the loop were faster? The same model that predicts the gain of a finding.

What lives here: changes like `env_step=2x` or `replay.push=0`, and the loop's time with them. The main thread is serial: its
time is the sum of its parts, so a part that takes `1/k` shortens the loop by the rest of it. What other threads and processes
do counts as far as the main thread waits for it. The interval says how far the samples and the inference can be trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..model.finding import Gain
from ..model.phase import COLLECT, LEARN
from .devices import BETWEEN
from .findings import axes
from .findings.evidence import Evidence, Slice
from .findings.rule import speedup

_SETTING = re.compile(
    r"(?:(?P<envs>envs)=(?P<n>\d+)|minibatch=x(?P<times>\d+(?:\.\d+)?)|threads=(?P<threads>\d+)|(?P<net>policy|loss)=compiled)$"
)
_CHANGE = re.compile(r"(?P<part>.+?)=(?:(?P<times>\d+(?:\.\d+)?)x|(?P<percent>[+-]?\d+(?:\.\d+)?)%|(?P<zero>0))$")


@dataclass(frozen=True, slots=True)
class Change:
    """A part in another time, or a setting: more environments, larger minibatches, other threads, a compiled network."""

    part: str
    left: float = 1.0  # of its time, what remains
    setting: Callable[[Evidence], axes.Effect] | None = None

    def describe(self) -> str:
        if self.setting is not None:
            return self.part
        return f"{self.part} gone" if not self.left else f"{self.part} in {self.left * 100:.0f} % of its time"


@dataclass(frozen=True, slots=True)
class Effect:
    change: Change
    share: float  # of the loop
    matched: tuple[str, ...]  # labels it touches; of a setting, where its effect is known from
    changes_learning: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    effects: tuple[Effect, ...]
    gain: Gain
    loop_s: float
    after_s: float


def parse_change(text: str) -> Change:
    """`env_step=2x`: twice as fast; `render=0`: gone; `sample=-30%`: 30 % less time.

    >>> parse_change("env_step=2x").left, parse_change("render=0").left, parse_change("envs=8").describe()
    (0.5, 0.0, 'envs=8')
    """
    setting = _SETTING.fullmatch(text.strip())
    if setting is not None:
        return Change(text.strip(), setting=_setting(setting))
    found = _CHANGE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text!r} is no change; write env_step=2x (twice as fast), render=0 (gone), sample=-30%, "
            "or a setting: envs=8, minibatch=x4, threads=1, policy=compiled"
        )
    if found["times"]:
        if float(found["times"]) <= 0:
            raise UsageError(f"{text!r}: a part cannot get 0 times as fast; write {found['part']}=0 for gone")
        return Change(found["part"], 1 / float(found["times"]))
    if found["percent"]:
        left = 1 + float(found["percent"]) / 100
        if left < 0:
            raise UsageError(f"{text!r}: a part cannot lose more than 100 %; write {found['part']}=0 for gone")
        return Change(found["part"], left)
    return Change(found["part"], 0.0)


def _setting(found: re.Match[str]) -> Callable[[Evidence], axes.Effect]:
    if found["envs"]:
        envs = int(found["n"])
        if not envs:
            raise UsageError("a loop without environments collects nothing; write envs=8, say")
        return lambda e: axes.with_envs(e, envs)
    if found["times"]:
        times = float(found["times"])
        if not times:
            raise UsageError("a minibatch of nothing teaches nothing; write minibatch=x4, say")
        return lambda e: axes.with_minibatch(e, times)
    if found["threads"]:
        threads = int(found["threads"])
        return lambda e: axes.with_threads(e, threads)
    phase = COLLECT if found["net"] == "policy" else LEARN
    return lambda e: axes.with_compiled(e, phase)


def predict_change(e: Evidence, changes: Sequence[Change]) -> Prediction:
    """The loop with all these changes together. Where two of them name the same time, the later one goes on where the first
    left off."""
    left = {x.index: 1.0 for x in e.slices}
    effects = []
    inferred = 0.0
    added = 0.0
    for change in changes:
        if change.setting is not None:
            effect = change.setting(e)
            for index, rest in effect.left.items():
                left[index] *= rest
            added += effect.added_ns
            touched = [x for x in e.slices if x.index in effect.left]
            inferred += 0.0 if effect.measured else 0.5 * sum(x.ns for x in touched)
            effects.append(Effect(change, e.share(touched), (effect.source,), effect.changes_learning))
            continue
        slices = [x for x in e.slices if _matches(x, change.part)]
        if not slices:
            raise UsageError(f"nothing in this session is called {change.part}; its parts: {', '.join(_parts(e)[:12])}")
        for piece in slices:
            left[piece.index] *= change.left
            if not piece.labels:
                inferred += piece.ns
        effects.append(Effect(change, e.share(slices), tuple(sorted({x.label or BETWEEN for x in slices}))[:8]))
    saved = (sum(x.ns * (1 - left[x.index]) for x in e.slices) - added) / e.loop_ns
    doubt = 0.05 + 0.5 * min(1.0, inferred / e.loop_ns)  # a twentieth for what the part drags along, more where it is inferred
    gain = Gain(speedup(saved * (1 - 2 * doubt)), speedup(saved), speedup(min(0.99, saved * (1 + doubt))))
    if saved < 0:
        gain = Gain(gain.high, gain.mid, gain.low)
    return Prediction(tuple(effects), gain, e.loop_ns / 1e9, e.loop_ns / 1e9 / gain.mid)


def _matches(piece: Slice, part: str) -> bool:
    """By label (`env_step`, `collect/env_step`), by phase (`collect`) or by function (`replay.push`, `push`)."""
    for label in piece.labels:
        if part == label or label.rpartition("/")[2] == part or label.partition("/")[0] == part:
            return True
    wanted = part.casefold().split(".")
    for place in piece.places:
        names = place.function.casefold().replace("<locals>.", "").split(".")
        if names[-1] == wanted[-1] and (len(wanted) == 1 or any(wanted[-2] in name for name in names[:-1])):
            return True
    return False


def _parts(e: Evidence) -> list[str]:
    totals: dict[str, float] = {}
    for piece in e.slices:
        for label in piece.labels:
            totals[label] = totals.get(label, 0.0) + piece.ns
    return sorted(totals, key=lambda name: -totals[name])
