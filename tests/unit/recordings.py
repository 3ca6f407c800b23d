"""A training loop as the sampler would have seen it: a script's text, and how long it was at which lines.

    diagnose_script(TEXT, [Seen(("main:12", "Env.step:4"), 400, "collect/env_step")])

A stack is functions and lines of the script, `"name:line"` or `"name:line:expression"`, outermost first; a name that ends
with .py is a library's file, with its whole path or that within the folder of packages, and its function before an @ if that
matters.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import dedent

from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.model import phase as ph
from hotloop.model import shard as m
from hotloop.model.probe import Probes
from hotloop.model.session import Source
from hotloop.store.sources import _blocks, _functions

from .loops import FILE, make_session
from .shards import ROOT, node, shard

MS = 1_000_000
PACKAGES = "/opt/lib/python3.11/site-packages/"
RUNS = (m.RUNNING, True, m.SHORT)  # Python code
CALLS = (m.RUNNING, False, m.SHORT)  # small native calls
COMPUTES = (m.RUNNING, False, m.LASTING)
BLOCKS = (m.BLOCKED, False, 0)


@dataclass(frozen=True)
class Seen:
    """Milliseconds at a stack: `(function or library file, line)`, outermost first."""

    stack: tuple[str, ...]
    ms: int
    label: str = ""  # of its span, "" between two calls; `a > b` is nested
    did: tuple[int, bool, int] = RUNS
    calls: int = 10
    thread: int = 0  # 0: the training's
    expired: float = 0.0  # of a wait, the part that a time limit ended


def diagnose_script(
    text: str, seen: Sequence[Seen], probes: Probes | None = None, iterations: Sequence[int] = (), **counters: int
) -> Diagnosis:
    """`iterations`: how many milliseconds each took."""
    source = _source(dedent(text))
    labels, paths, known = [ROOT], [m.Path(0, 0)], {(): 0}
    own: dict[tuple[int, int], int] = {(0, 0): 0}  # by thread and path
    calls: dict[tuple[int, int], int] = {}
    expired: dict[tuple[int, int], int] = {}
    places: dict[m.Place, int] = {}
    stacks: dict[tuple[int, int], int] = {}
    samples = []
    for row in seen:
        chain: tuple[str, ...] = ()
        for name in (x.strip() for x in row.label.split(">") if x.strip()):
            if (*chain, name) not in known:
                phase = next((c for c in range(1, 9) if ph.phase_name(c) == name.partition("/")[0]), 0)
                kind = m.WAIT if name.startswith("(waiting") else m.GARBAGE if name == m.GC_PAUSE else m.USER
                labels.append(m.Label(name, kind, 0, 0, phase=phase, after=0, owns=True))
                paths.append(m.Path(known[chain], len(labels) - 1))
                known[*chain, name] = len(paths) - 1
            chain = (*chain, name)
        path = known[chain]
        at = row.thread, path
        own[at] = own.get(at, 0) + row.ms
        calls[at] = row.calls
        expired[at] = expired.get(at, 0) + round(row.ms * row.expired) * MS
        stack = -1
        for word in row.stack:
            place = _place(word, source)
            number = places.setdefault(place, len(places))
            stack = stacks.setdefault((stack, number), len(stacks))
        samples.append(m.Sample(stack, path, row.thread, row.ms, False, *row.did))
    nodes = [
        replace(node(at[0], at[1], ms * MS, calls.get(at, 0), ms * MS if at[1] else 0), expired_ns=expired.get(at, 0))
        for at, ms in own.items()
    ]
    found = m.Samples(MS, sum(x.ms for x in seen if not x.thread), 0, tuple(places), tuple(stacks), tuple(samples))
    counters = {"env_steps": 100, "updates": 10} | counters
    ends = [sum(iterations[: i + 1]) * MS for i in range(len(iterations))]
    rows = tuple(
        m.Iteration(i, 1, end - ms * MS, end, {}, {}, {}) for i, (ms, end) in enumerate(zip(iterations, ends, strict=True))
    )
    one = shard(labels, paths, nodes, samples=found, counters=counters, first_work_ns=1, iterations=rows)
    session = replace(make_session(), shards=(one,), sources={FILE: source}, hooks=())
    return diagnose(replace(session, probes=probes) if probes is not None else session)


def _place(word: str, source: Source) -> m.Place:
    name, line, *expression = word.split(":", 2)
    if name.endswith(".py"):
        function, _, file = name.rpartition("@")
        return m.Place(file if file.startswith("/") else PACKAGES + file, function or "call", int(line), 1)
    first = next((a for function, a, _ in source.functions if function == name), 1)
    begin = source.text[int(line)].index(expression[0]) if expression else 0
    return m.Place(FILE, name, int(line), first, (begin, begin + len("".join(expression))))


def _source(text: str) -> Source:
    tree = ast.parse(text)
    rows = dict(enumerate(text.splitlines(), 1))
    return Source(tuple(_blocks(tree)), rows, tuple(_functions(tree)))
