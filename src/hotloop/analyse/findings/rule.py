"""What a rule says: the time it claims, the place, and what fixing it gains.

What lives here: `Candidate`, how most causes make theirs, and the gain model. The loop is serial where the main thread is:
without a share `s` of its time it takes `1 - s` of the time. Expected: what the action removes goes. How sure that is follows
from what became of earlier predictions (residuals.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...model.mechanism import COMPUTING, DISPATCHING
from ...model.phase import COLLECT, LEARN
from ...model.shard import Place
from .evidence import Evidence, Slice

MOST_GAIN = 100.0
_NO_FORWARD = ("backward", "optimizer", "zero_grad", "clip_grad", "env_step", "env_reset", "sample", "make_tensor")


@dataclass(frozen=True, slots=True)
class Expected:
    """A gain, before anything is said about how sure it is. `most`: where none is expected, what there could be."""

    mid: float
    most: float = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    title: str  # `{share}` stands for the share of the time it explains in the end
    where: Place
    span: str
    slices: tuple[Slice, ...] = ()  # the time it explains; nobody else may claim it
    share: float | None = None  # where it is not the slices' time
    removes: float = 0.95  # of the share, what the action removes
    evidence: tuple[str, ...] = ()
    gain: Expected | None = None  # where the model is another
    measured: bool = False  # predicted from the script's own objects, measured after the run
    action: str = ""  # where it is not the `ACTION` of the cause
    calls: bool = False  # it is tensor calls that could be fewer: their backward passes go with them
    mechanism: str = ""  # of the time that could be gone, where it is not the slices' own: others are waited for


def predict(share: float, removes: float = 0.95) -> Expected:
    """The gain of removing part of a share of a serial loop.

    >>> predict(0.5, 1.0).mid
    2.0
    """
    return Expected(speedup(min(max(share, 0.0), 0.99) * removes))


def speedup(removed: float) -> float:
    return min(MOST_GAIN, 1 / max(0.01, 1 - removed))


def claim(
    e: Evidence,
    slices: Sequence[Slice],
    span: str,
    title: str,
    least: float,
    *evidence: str,
    inside: Iterable[str] = (),
    held: float = 0.5,
    where: Place | None = None,
    removes: float = 0.95,
) -> Candidate | None:
    """What most causes come to: slices that are at least this share of the loop, and the function that holds most of them, by
    `blame` (`inside`, `held`), unless the cause knows better `where`. In title and evidence, `{share}` and `{function}` stand
    for the two; the share is filled in when all causes have had their turn."""
    share = e.share(slices)
    if share < least:
        return None
    where = where or e.blame(slices, inside, held, through=True)
    said = [text.replace("{function}", function_name(where)) for text in (title, *evidence)]
    return Candidate(said[0], where, span, tuple(slices), removes=removes, evidence=tuple(said[1:]))


def main_mechanism(slices: Iterable[Slice]) -> str:
    """What most of this time was spent on; "" without any."""
    spent: Counter[str] = Counter()
    for piece in slices:
        for name, share in piece.mechanisms:
            spent[name] += piece.ns * share  # type: ignore[assignment]
    return spent.most_common(1)[0][0] if spent else ""


def backward_of(e: Evidence, slices: Iterable[Slice]) -> float:
    """Of the loop, the backward pass of these calls: it makes about the calls of the forward pass, so they have the part of it
    that they have of all calls under autograd. How far collecting is under autograd was looked at now and then."""
    looked = e.facts.get("collect_calls", 0)
    grad = {LEARN: 1.0, COLLECT: e.facts.get("collect_grad", 0) / looked if looked else 0.0}

    def calls_ns(pieces: Iterable[Slice]) -> float:
        return sum(
            x.ns * (x.part(DISPATCHING) + x.part(COMPUTING)) * grad.get(x.phase, 0.0)
            for x in pieces
            if not any(label.rpartition("/")[2] in _NO_FORWARD for label in x.labels)
        )

    whole = calls_ns(e.slices)
    return e.share(e.where_label("learn/backward")) * calls_ns(slices) / whole if whole else 0.0


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def total(slices: Iterable[Slice]) -> float:
    return sum(x.ns for x in slices)


def join(*groups: Iterable[Slice]) -> list[Slice]:
    """All of them, each once."""
    return list({x.index: x for group in groups for x in group}.values())


def function_name(where: Place) -> str:
    return where.function or "the script"


def per_call(evidence: Evidence, label: str) -> float:
    """Mean nanoseconds of a call, 0 if there is none."""
    calls = busy = 0
    for operation in evidence.diagnosis.operations:
        if operation.name == label or operation.name.rpartition("/")[2] == label:
            calls += operation.calls
            busy += operation.busy_ns
    return busy / calls if calls else 0.0
