"""Axes: ways to shorten the loop that need no other code, only another size, and what each leaves of every slice.

What lives here: more environments a call, larger minibatches, fewer threads, a compiled network, each by the curve measured on
the script's own network after the run, or, without one, by what its time is spent on. Findings and `whatif` ask here, so that
both say the same. Invariant: nothing is said to get faster than its arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import UsageError
from ...model.mechanism import COMPUTING, DISPATCHING, MOVING
from ...model.phase import COLLECT, LEARN
from ...model.probe import Curve
from ...model.shard import WAIT
from ..owners import FRAMEWORK, owner_of
from .evidence import Evidence, Slice
from .places import is_vector
from .rule import total

VECTOR_NS = 8_000  # a step of one environment inside a vector environment: stable-baselines3's and gymnasium's, here
# Of a vector environment's own time, what does not grow with the number of environments (DummyVecEnv with 1 and 8 of them).
VECTOR_FIXED = 0.5
# A call of a compiled network without its arithmetic: guards and the wrapper (a two-layer network under torch.compile, here).
COMPILED_NS = 40_000
_ENV_SPANS = ("env_step", "env_reset")
_UPDATE = ("forward", "backward", "optimizer", "zero_grad", "clip_grad", "loss", "sample", "make_tensor")
_NETWORK = {COLLECT: ("policy",), LEARN: ("forward", "backward")}


@dataclass(frozen=True, slots=True)
class Effect:
    """What a setting leaves of the slices it changes, what it adds, and how that is known."""

    left: dict[int, float] = field(default_factory=dict)  # by slice
    added_ns: float = 0.0
    source: str = ""
    measured: bool = False  # by a curve, not by a constant
    changes_learning: bool = False

    def saved_ns(self, slices: Iterable[Slice]) -> float:
        return sum(x.ns * (1 - self.left.get(x.index, 1.0)) for x in slices) - self.added_ns


@dataclass(frozen=True, slots=True)
class Collecting:
    """What is paid for each call, whatever it carries."""

    policy: tuple[Slice, ...]
    shared: tuple[Slice, ...]  # the rest around it, but arithmetic and bytes, which grow with the rows
    vector: tuple[Slice, ...]  # the vector environment's own time


def mean_rows(e: Evidence) -> float:
    """Observations in a call of the policy; 0: not known."""
    seen = e.facts.get("collect_calls", 0)
    return e.facts.get("collect_rows", 0) / seen if seen else 0.0


def split_collect(e: Evidence) -> Collecting:
    policy: list[Slice] = []
    shared: list[Slice] = []
    vector: list[Slice] = []
    for piece in e.left:
        if piece.kind == WAIT or not (piece.phase == COLLECT or "collect/rollout" in piece.labels):
            continue  # of a rollout the advantages too: computed step by step, for all environments at once
        if not any(label.rpartition("/")[2] in _ENV_SPANS for label in piece.labels):
            if "collect/policy" in piece.labels:
                policy.append(piece)
            elif piece.part(COMPUTING) + piece.part(MOVING) <= 0.5:
                shared.append(piece)
        elif is_vector(piece.label) or (piece.places and owner_of(piece.places[-1].file, e.owners) == FRAMEWORK):
            vector.append(piece)
    return Collecting(tuple(policy), tuple(shared), tuple(vector))


def with_envs(e: Evidence, envs: int) -> Effect:
    """So many environments stepped at once, at the same env steps and updates."""
    if not e.step_calls or not e.env_steps:
        raise UsageError("no env step was seen in the learner, so nothing can be said about more environments")
    parts, now = split_collect(e), max(1.0, e.env_steps / e.step_calls)
    times, rows, curve = envs / now, max(1.0, mean_rows(e)), e.curve(COLLECT)
    if curve is not None:
        grows = curve.cost(rows * times) / curve.cost(rows)
        said = _curve_text(curve, rows, rows * times)
    else:
        computes = _computing(parts.policy)
        grows = 1 - computes + computes * times
        said = f"{computes * 100:.0f} % of the policy's time is arithmetic; the rest is paid per call"
    left = {x.index: grows / times for x in parts.policy} | {x.index: 1 / times for x in parts.shared}
    left |= {x.index: 1 - VECTOR_FIXED + VECTOR_FIXED / times for x in parts.vector}
    added = 0.0 if parts.vector or now > 1 else e.env_steps * VECTOR_NS
    return Effect(left, added, said, curve is not None, True)


def with_minibatch(e: Evidence, times: float) -> Effect:
    """Minibatches so many times as large, and as many fewer updates."""
    curve = e.curve(LEARN)
    update = [x for x in e.left if x.phase == LEARN and x.label.rpartition("/")[2] in _UPDATE]
    if curve is not None:
        keeps = curve.cost(curve.rows * times) / (times * curve.cost(curve.rows))
        said = _curve_text(curve, curve.rows, curve.rows * times)
    else:
        computes = _computing(update)
        keeps = computes + (1 - computes) / times
        said = f"{computes * 100:.0f} % of an update is arithmetic; the rest is paid per call"
    per_call = [x for x in update if x.label.rpartition("/")[2] in ("optimizer", "zero_grad", "clip_grad")]
    around = [x for x in e.left if x.phase == LEARN and not x.labels]  # what the script does with each minibatch itself
    left = {x.index: 1 - x.part(DISPATCHING) * (1 - 1 / times) for x in around}
    left |= {x.index: keeps for x in update} | {x.index: 1 / times for x in per_call}
    return Effect(left, 0.0, said, curve is not None, True)


def with_threads(e: Evidence, threads: int) -> Effect:
    """So many torch threads: only what was measured."""
    probes = e.session.probes
    if threads == probes.threads:
        return Effect({}, 0.0, f"torch uses {threads} thread{'s' * (threads != 1)} already", True)
    ratios = {
        c.phase: c.variants[f"threads={threads}"] / c.cost(c.rows) for c in probes.curves if f"threads={threads}" in c.variants
    }
    if not ratios:
        raise UsageError(f"{threads} threads were not measured after the run; only threads=1 is, where torch used more")
    left = {
        x.index: ratios[x.phase]
        for x in e.left
        if x.phase in ratios and x.label.rpartition("/")[2] in _NETWORK.get(x.phase, ())
    }
    said = ", ".join(f"{ratio:.2f} of the time" for ratio in ratios.values())
    return Effect(left, 0.0, f"your networks with {threads} thread{'s' * (threads != 1)}: {said}", True)


def with_compiled(e: Evidence, phase: int) -> Effect:
    """The network of a phase compiled: its arithmetic, and a fixed cost per call. Not measured: compiling takes minutes."""
    network = [x for x in e.left if x.phase == phase and x.label.rpartition("/")[2] in _NETWORK[phase]]
    calls = e.calls_of(*(f"{'collect' if phase == COLLECT else 'learn'}/{name}" for name in _NETWORK[phase]))
    if not network or not calls:
        raise UsageError("no call of that network was seen")
    keeps = min(1.0, _computing(network) + calls * COMPILED_NS / total(network))
    said = f"by a constant: a compiled call takes {COMPILED_NS / 1000:.0f} µs and its arithmetic"
    return Effect({x.index: keeps for x in network}, 0.0, said)


def _curve_text(curve: Curve, now: float, then: float) -> str:
    costs = [curve.cost(rows) / 1000 for rows in (now, then)]
    return f"your network: {costs[0]:,.0f} µs for {now:.0f}, {costs[1]:,.0f} µs for {then:.0f} rows"


def _computing(slices: Iterable[Slice]) -> float:
    pieces = list(slices)
    return sum(x.ns * x.part(COMPUTING) for x in pieces) / max(1.0, total(pieces))
