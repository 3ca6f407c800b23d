"""A training loop as the sampler would have seen it: a script's text, and how long it was at which lines.

    diagnose_script(TEXT, [Seen(("main:12", "Env.step:4"), 400, "collect/env_step")])

A stack is functions and lines of the script, `"name:line"`, outermost first; a name that ends with .py is a library's file.
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


def diagnose_script(text: str, seen: Sequence[Seen], probes: Probes | None = None, **counters: int) -> Diagnosis:
    source = _source(dedent(text))
    labels, paths, known = [ROOT], [m.Path(0, 0)], {(): 0}
    own: dict[int, int] = {0: 0}
    calls: dict[int, int] = {}
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
        own[path] = own.get(path, 0) + row.ms
        calls[path] = row.calls
        at = -1
        for word in row.stack:
            place = _place(word, source)
            number = places.setdefault(place, len(places))
            at = stacks.setdefault((at, number), len(stacks))
        samples.append(m.Sample(at, path, 0, row.ms, False, *row.did))
    nodes = [node(0, path, ms * MS, calls.get(path, 0), ms * MS if path else 0) for path, ms in own.items()]
    found = m.Samples(MS, sum(x.ms for x in seen), 0, tuple(places), tuple(stacks), tuple(samples))
    counters = {"env_steps": 100, "updates": 10} | counters
    one = shard(labels, paths, nodes, samples=found, counters=counters, first_work_ns=1)
    session = replace(make_session(), shards=(one,), sources={FILE: source}, hooks=())
    return diagnose(replace(session, probes=probes) if probes is not None else session)


def _place(word: str, source: Source) -> m.Place:
    name, _, line = word.rpartition(":")
    if name.endswith(".py"):
        return m.Place(PACKAGES + name, "call", int(line), 1)
    first = next((a for function, a, _ in source.functions if function == name), 1)
    return m.Place(FILE, name, int(line), first)


def _source(text: str) -> Source:
    tree = ast.parse(text)
    rows = dict(enumerate(text.splitlines(), 1))
    return Source(tuple(_blocks(tree)), rows, tuple(_functions(tree)))
