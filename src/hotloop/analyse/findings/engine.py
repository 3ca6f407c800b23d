"""The engine: every rule looks, the most specific claims first, and what remains is told in the order of its gain.

What lives here: the causes in the order of their claims, and the merging. One story: time that a specific cause
explains (an env step that is slow because it draws) is taken from the general ones, which then have less to say or nothing.
"""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...model.finding import Finding, Gain
from ...model.mechanism import WAITING
from ...model.session import SessionData
from ..limits import Claim
from . import causes as folder
from .evidence import Evidence
from .places import NO_REGION, Region, find_drivers, regions
from .residuals import CAUSE, MEASURED, PLACE, WAITS, interval
from .rule import Candidate, backward_of, join, main_mechanism, percent, predict, total

if TYPE_CHECKING:
    from ..diagnosis import Diagnosis

LITTLE = 1.15  # below it, a run is called healthy
GENERAL = frozenset({"hot-code", "dispatch-bound", "bandwidth-bound", "wait-bound", "library-call", "compute-bound"})
# Without phases all is known from samples. Of this many, a place with a tenth of the time is seen 3 ± 1.7 times.
LEAST_SAMPLES = 30
LEAST_EXPLAINED = 1 / 4  # of a region, by the cause that then names all of it: the calls of a loop beside what prepares them
LEAST_BACKWARD = 0.02  # of the loop, to be worth a line
FEW_SAMPLES = 8  # of what a finding is about: 8 ± 2.8 of them, so its share is known to a third at best


def causes() -> dict[str, ModuleType]:
    """Every cause we can name, by id, in the order of their turns to claim time: the most specific first."""
    modules = [importlib.import_module(f"{folder.__name__}.{x.name}") for x in pkgutil.iter_modules(folder.__path__)]
    return {x.__name__.rpartition(".")[2].replace("_", "-"): x for x in sorted(modules, key=lambda x: x.TURN)}


def title(module: ModuleType) -> str:
    """What a cause is: the first line of its page."""
    return (module.__doc__ or "").partition("\n")[0].removesuffix(".")


def check_causes(names: Iterable[str]) -> None:
    """Refuse, in one sentence, a name that is no cause's."""
    for name in names:
        if name not in causes():
            raise UsageError(f"{name} is no cause; `hotloop explain` lists them")


def find_claims(diagnosis: Diagnosis, select: Collection[str] = (), ignore: Collection[str] = ()) -> tuple[Claim, ...]:
    """What slows this run down, largest gain first, with the time each explains."""
    if not _has_begun(diagnosis):
        return ()  # what was seen is importing and setting up
    evidence = diagnosis.evidence
    evidence.claimed.clear()
    found: list[tuple[str, ModuleType, Candidate]] = []
    widened = False
    for name, module in causes().items():
        if name in ignore or (select and name not in select):
            continue
        if name in GENERAL and not widened:
            found, widened = _widen(found, evidence), True
        said = module.find(evidence)
        for candidate in said if isinstance(said, Iterable) else (said,):  # a general cause may be at several places
            kept = _claim(candidate, evidence)
            if kept is not None:
                found.append((name, module, kept))
    backward = tuple(evidence.where_label("learn/backward"))
    claims = [
        Claim(_finding(name, module, kept, evidence), join(kept.slices, backward if kept.calls else ()))
        for name, module, kept in _one_each(found)
    ]
    return tuple(sorted(claims, key=lambda claim: _rank(claim.finding)))


def _widen(found: list[tuple[str, ModuleType, Candidate]], e: Evidence) -> list[tuple[str, ModuleType, Candidate]]:
    """A rewrite replaces a whole loop, not only the calls in it that gave a cause its name. So the cause that explains most of
    a region takes the rest of it, and what other causes of this kind explain there."""
    drivers = find_drivers(e)
    region_of = {i: x for i, x in regions(e, drivers).items() if x[:2] not in drivers or x[2]}  # no loop, no activity: lines
    owner = {x.index: i for i, (_, _, c) in enumerate(found) for x in c.slices}
    rewriting = {i for i, (_, module, c) in enumerate(found) if getattr(module, "REWRITES", False) and c.share is None}
    parts: dict[Region, Counter[int]] = defaultdict(Counter)
    for piece in e.slices:
        if piece.index in region_of:
            parts[region_of[piece.index]][owner.get(piece.index, -1)] += round(piece.ns)
    takes = {}
    for region, by in parts.items():
        most, ns = max(((i, ns) for i, ns in by.items() if i in rewriting), key=lambda x: x[1], default=(-1, 0))
        if ns >= LEAST_EXPLAINED * sum(by.values()):
            takes[region] = most
    for piece in e.slices:
        new, old = takes.get(region_of.get(piece.index, NO_REGION), -1), owner.get(piece.index, -1)
        only = getattr(found[new][1], "TAKES", ()) if new >= 0 else ()
        if new >= 0 and (old < 0 or old in rewriting) and (not only or main_mechanism([piece]) in only):
            owner[piece.index] = new
            e.claimed.add(piece.index)
    widened = []
    for i, (name, module, c) in enumerate(found):
        slices = tuple(x for x in e.slices if owner.get(x.index) == i)
        if not c.slices or total(slices) >= 0.5 * total(c.slices):
            widened.append((name, module, replace(c, slices=slices) if i in rewriting else c))
    return widened


def _one_each(found: list[tuple[str, ModuleType, Candidate]]) -> list[tuple[str, ModuleType, Candidate]]:
    """A function that is called from several parts of the loop, and slow in the same way in each, is one place: it has the name
    of the cause that explains most of it there. Two specific causes have different remedies: the smaller one stays apart."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, (_, _, c) in enumerate(found):
        plain = c.slices and c.share is None and c.gain is None and c.where.file
        groups[(c.where.file, c.where.function, main_mechanism(c.slices)) if plain else (i,)].append(i)
    kept = []
    for numbers in groups.values():
        specific = sorted((i for i in numbers if found[i][0] not in GENERAL), key=lambda i: -total(found[i][2].slices))
        kept += [(i, found[i]) for i in specific[1:]]
        numbers = [i for i in numbers if i not in specific[1:]]
        first = max(numbers, key=lambda i: total(found[i][2].slices))
        name, module, c = found[first]
        slices = tuple(x for i in numbers for x in found[i][2].slices)
        gone = sum(found[i][2].removes * total(found[i][2].slices) for i in numbers)
        one = replace(c, slices=slices, removes=gone / total(slices)) if len(numbers) > 1 else c
        kept.append((first, (name, module, one)))
    return [row for _, row in sorted(kept, key=lambda x: x[0])]


def _rank(finding: Finding) -> tuple[int, float]:
    """The largest gain first; what may change what is learnt has to gain more to come before what does not. Then what cannot be
    told as a gain (memory that grows, a slow start), then what gains little; at the very end a place told by its mechanism
    alone that promises nothing."""
    worth = -math.log(finding.gain.mid) * (0.7 if finding.changes_learning else 1.0)
    if finding.gain.mid <= 1:
        return 3 if finding.cause in GENERAL or finding.cause == "unattributed" else 1, worth
    return 0 if finding.gain.mid >= LITTLE else 2, worth


def _has_begun(diagnosis: Diagnosis) -> bool:
    """Did the loop begin? Hooks know it by its work or its workers; where they saw no loop, the script says it by counting
    work, closing iterations or starting workers itself."""
    counters = diagnosis.counters
    begun = bool(counters.get("env_steps") or counters.get("updates") or len(diagnosis.processes) > 1)
    if diagnosis.phases.known:
        return begun
    seen = sum(stack.count for stack in diagnosis.stacks)
    return seen >= LEAST_SAMPLES and (begun or bool(diagnosis.iterations_closed))


def _claim(candidate: Candidate | None, e: Evidence) -> Candidate | None:
    """What is left of a candidate after those before it have taken theirs."""
    if candidate is None or not candidate.slices:
        return candidate
    left = tuple(x for x in candidate.slices if x.index not in e.claimed)
    before, after = e.share(candidate.slices), e.share(left)
    if before <= 0 or after < 0.5 * before or after < 0.04:
        return None
    e.claimed.update(x.index for x in left)
    if after >= 0.99 * before:
        return candidate
    share = candidate.share * after / before if candidate.share is not None else None
    return replace(candidate, slices=left, share=share)


def _finding(cause: str, module: ModuleType, c: Candidate, e: Evidence) -> Finding:
    share = c.share if c.share is not None else e.share(c.slices)
    backward = backward_of(e, c.slices) if c.calls else 0.0
    if backward >= LEAST_BACKWARD:
        c = replace(c, evidence=(*c.evidence, f"their backward passes, {percent(backward)} of the loop, get shorter with them"))
    expected = c.gain or predict(share + backward, c.removes)
    seen = sum(x.samples for x in c.slices)
    mechanism = c.mechanism or main_mechanism(c.slices)
    waits = main_mechanism(c.slices) in (WAITING, "")
    kind = MEASURED if c.measured else WAITS if waits else PLACE if cause in GENERAL else CAUSE
    gain = Gain(1.0, 1.0, max(1.0, expected.most))  # of what cannot be told as a gain
    if expected.mid > 1:
        gain = e.diagnosis.history.correct(cause, interval(kind, expected.mid, seen))
    if 0 < seen < FEW_SAMPLES and all(x.samples for x in c.slices):
        gain = Gain(1.0, 1.0, gain.high)  # one sample more or less would change it: no prediction
        c = replace(c, evidence=(f"only {seen} samples were taken there: run it for longer for a prediction", *c.evidence))
    file = shown_file(c.where.file, e.session)
    shown = percent(e.share(c.slices) if c.slices else share)
    title, *evidence = (text.replace("{share}", shown) for text in (c.title, *c.evidence))
    return Finding(
        cause=cause, title=title, span=c.span, file=file, line=c.where.line,
        function=c.where.function, share=min(1.0, max(0.0, share)), gain=gain, evidence=tuple(evidence),
        action=c.action or module.ACTION, verify=verify_command(e.session, file), known_by=kind,
        mechanism=getattr(module, "MECHANISM", mechanism),
        changes_learning=getattr(module, "CHANGES_LEARNING", False),
    )  # fmt: skip


def shown_file(file: str, session: SessionData) -> str:
    """As on the command line, or relative to where the script ran."""
    cwd = session.meta.get("cwd")
    command = session.meta.get("command")
    if isinstance(command, list):
        for word in command:
            if isinstance(word, str) and isinstance(cwd, str) and os.path.join(cwd, word) == file:
                return word
    if isinstance(cwd, str) and file.startswith(cwd.rstrip("/") + "/"):
        return file[len(cwd.rstrip("/")) + 1 :]
    return file


def verify_command(session: SessionData, file: str) -> str:
    """How to prove the fix: keep a copy of what there was, make the change, run both in turns.

    Where the change belongs into the script itself, a copy of the script is enough; elsewhere the whole folder is copied."""
    command = session.meta.get("command")
    words = [w for w in command[1:] if isinstance(w, str)] if isinstance(command, list) else []
    if not words or words[0] == "-c":
        return ""
    after = shlex.quote(f"python {shlex.join(words)}")
    if file != words[0] or not file.endswith(".py"):
        return f"cp -r . ../before; make the change; hotloop ab {after} {after} --a-in ../before"
    copy = f"{file.removesuffix('.py')}_before.py"
    before = shlex.quote(f"python {shlex.join([copy, *words[1:]])}")
    return f"cp {shlex.quote(file)} {shlex.quote(copy)}; make the change; hotloop ab {before} {after}"
