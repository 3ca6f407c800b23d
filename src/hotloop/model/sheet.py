"""The balance sheet: one track's lifetime as a tree in which every row is the sum of the rows below it.

What lives here: the tree people read first, from the ledger. Its leaves are of four kinds: work, waiting, unattributed,
profiler. Invariants, in whole nanoseconds: the first row is the lifetime; a row with rows below it is their sum.

While the track waits for work it handed over (to a pool, another process), the waiting time is divided among that work in
proportion to the thread-time it took. These rows are inferred, and say so; in the sums they are what they are: waiting.

Who may touch it: anyone; it is pure and needs the standard library only, so the training process uses it too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import shard as m
from .ledger import INFERRED, PROFILER, UNATTRIBUTED, WAITING, Balance, Branch, Ledger, accounts_of

SPAN = "span"
KINDS = (SPAN, WAITING, UNATTRIBUTED, PROFILER)
ITSELF, OUTSIDE, NO_SPAN, HANDED, OWN_COST = "(itself)", "(outside its parts)", "(no span open)", "(handed over)", "(profiler)"
_IDLE = "(waiting: idle worker)"
_OWN_WAIT = "(waiting: sleep)"  # a wait that no other thread's work explains


@dataclass(frozen=True, slots=True)
class Row:
    parent: int  # index of a row before it; -1: the first
    depth: int
    name: str
    kind: str
    inferred: bool
    ns: int
    calls: int  # over all tracks
    busy_ns: int  # thread-time of this and everything below, over all tracks
    branch: int  # in the ledger's tree; -1: none
    leaf: bool = True
    waited: bool = False  # work of others that the track waited for: its time here is waiting

    @property
    def account(self) -> str:
        """What its time counts as in every sum."""
        return WAITING if self.waited else self.kind


@dataclass(frozen=True, slots=True)
class Sheet:
    rows: tuple[Row, ...]  # parents before children, largest first

    @property
    def wall_ns(self) -> int:
        return self.rows[0].ns

    def total_ns(self, kind: str, inferred: bool | None = None) -> int:
        """What all leaves of a kind hold, as every sum counts them."""
        return sum(r.ns for r in self.rows if r.leaf and r.account == kind and inferred in (None, r.inferred))

    def children(self) -> list[list[int]]:
        """Of every row, in order."""
        below: list[list[int]] = [[] for _ in self.rows]
        for i, row in enumerate(self.rows[1:], 1):
            below[row.parent].append(i)
        return below

    def children_of(self, index: int) -> list[int]:
        return [i for i, row in enumerate(self.rows) if row.parent == index]


def make_sheet(ledger: Ledger, balance: Balance) -> Sheet:
    """The sheet of one track, by its balance."""
    return _Builder(ledger, balance).build()


def sheet_of_iterations(shard: m.Shard, rows: Sequence[m.Iteration]) -> Sheet:
    """The sheet of some iterations of one process. Their rows do not tell threads apart: work below a hand-over and idle pool
    workers count as other threads, everything else as the thread that closes the iterations."""
    self_ns: dict[int, int] = defaultdict(int)
    calls: dict[int, int] = defaultdict(int)
    for row in rows:
        for path, ns in row.self_ns.items():
            self_ns[path] += ns
        for path, n in row.calls.items():
            calls[path] += n
    elsewhere: list[int] = []  # by path: 1 on other threads
    tree: list[Branch] = []
    parts = [0, 0, 0, 0]
    for i, entry in enumerate(shard.paths):
        label = shard.labels[entry.label]
        parent = entry.parent if i and entry.parent < i else -1
        other = label.kind == m.HANDOFF or label.name == _IDLE or (parent >= 0 and elsewhere[parent] == 1)
        elsewhere.append(int(other))
        phase = label.phase or (tree[parent].phase if parent >= 0 else 0)
        tree.append(Branch(parent, label.name, label.kind, calls[i], self_ns[i], phase, label.owns))
        if not other:
            parts[{m.WAIT: 1, m.ROOT: 2, m.HANDOFF: 2, m.PROFILER: 3}.get(label.kind, 0)] += self_ns[i]
    by_track = tuple((0, elsewhere[i], i, branch.self_ns) for i, branch in enumerate(tree) if branch.self_ns)
    balance = Balance(0, 0, "", *parts)
    return make_sheet(Ledger((balance,), (), tuple(tree), by_track, ()), balance)


def split_exactly(total: int, weights: Sequence[int]) -> list[int]:
    """Parts in proportion to the weights that add up to the total.

    >>> split_exactly(100, [1, 1, 1])
    [33, 33, 34]
    """
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    parts, before, seen = [], 0, 0
    for weight in weights:
        seen += weight
        upto = total * seen // whole
        parts.append(upto - before)
        before = upto
    return parts


def fold_small(sheet: Sheet, least_ns: int, most_children: int = 12, most_depth: int = 8) -> Sheet:
    """The same sheet with small rows gathered into one per parent, so that what is shown still adds up."""
    below = sheet.children()
    rows: list[Row] = []
    stack = [(sheet.rows[0], 0, -1)]  # the row, its index in the sheet (-1: gathered), its parent among those kept
    while stack:
        row, index, parent = stack.pop()
        at = len(rows)
        whole = index < 0 or row.leaf or row.depth >= most_depth
        rows.append(replace(row, parent=parent, leaf=whole))
        if whole:
            continue
        large = [i for i in below[index] if sheet.rows[i].ns >= least_ns][:most_children]
        kept = set(large)
        small = [sheet.rows[i] for i in below[index] if i not in kept]
        stack += reversed([(sheet.rows[i], i, at) for i in large] + [(r, -1, at) for r in _gather(small)])
    return Sheet(tuple(rows))


def _gather(rows: list[Row]) -> list[Row]:
    """One row for all of a kind."""
    out = []
    for key in sorted({(r.kind, r.inferred, r.waited) for r in rows}):
        alike = [r for r in rows if (r.kind, r.inferred, r.waited) == key]
        name = f"({len(alike)} more)" if len(alike) > 1 else alike[0].name
        ns, calls, busy = sum(r.ns for r in alike), sum(r.calls for r in alike), sum(r.busy_ns for r in alike)
        if ns:
            out.append(Row(0, alike[0].depth, name, key[0], key[1], ns, calls, busy, -1, waited=key[2]))
    return out


def round_shares(sheet: Sheet, steps: int = 1000) -> list[int]:
    """Each row's share of the whole in steps (1000: tenths of a percent), rounded so that rows still add up to their parent."""
    below = sheet.children()
    shares = [0] * len(sheet.rows)
    shares[0] = steps if sheet.wall_ns else 0
    for i, children in enumerate(below):
        if not children or not sheet.rows[i].ns:
            continue
        exact = [shares[i] * sheet.rows[c].ns for c in children]
        floors = [e // sheet.rows[i].ns for e in exact]
        missing = shares[i] - sum(floors)
        order = sorted(range(len(children)), key=lambda k: -(exact[k] % sheet.rows[i].ns))
        for k in order[:missing]:
            floors[k] += 1
        for c, share in zip(children, floors, strict=True):
            shares[c] = share
    return shares


@dataclass(frozen=True, slots=True)
class _Part:
    """A row to come; without a name, only its parts are shown."""

    parent: int
    name: str
    kind: str
    inferred: bool
    ns: int
    branch: int
    waited: bool = False
    shared_ns: int = 0  # of a wait's own time: shown as the work it was for


class _Builder:
    def __init__(self, ledger: Ledger, balance: Balance) -> None:
        self.tree: Sequence[Branch] = ledger.tree
        self.balance = balance
        size = len(self.tree)
        self.children: list[list[int]] = [[] for _ in range(size)]
        self.roots: list[int] = []
        for i, branch in enumerate(self.tree):
            (self.children[branch.parent] if branch.parent >= 0 else self.roots).append(i)
        self.accounts = accounts_of(self.tree)
        own, others = [0] * size, [0] * size
        for shard, track, at, self_ns in ledger.self_by_track:
            if self.tree[at].kind != m.PROFILER:
                (own if (shard, track) == (balance.shard, balance.track) else others)[at] += self_ns
        self.own, self.others = own, others
        self.own_totals, self.other_totals = self._totals(own), self._totals(others)
        self.rows: list[Row] = []

    def _totals(self, values: list[int]) -> list[int]:
        totals = list(values)
        for i in range(len(totals) - 1, -1, -1):
            parent = self.tree[i].parent
            if parent >= 0:
                totals[parent] += totals[i]
        return totals

    def build(self) -> Sheet:
        """Depth first by a stack of our own: a file may claim a tree deeper than Python's."""
        whole = self._add(_Part(-1, "wall", SPAN, False, self.balance.lifetime_ns, -1))
        stack = [_Part(whole, "", SPAN, False, self.own_totals[root], root) for root in reversed(self.roots)]
        while stack:
            part = stack.pop()
            row = part.parent
            if part.name:
                row = self._add(part)
            if part.branch >= 0 and part.kind in (SPAN, WAITING):
                stack += reversed(self._parts_of(part, row))
        if self.balance.profiler_ns:
            self._add(_Part(whole, OWN_COST, PROFILER, False, self.balance.profiler_ns, -1))
        return Sheet(tuple(self.rows))

    def _add(self, part: _Part) -> int:
        parent, branch = part.parent, part.branch
        depth = self.rows[parent].depth + 1 if parent >= 0 else 0
        if parent >= 0 and self.rows[parent].leaf:
            self.rows[parent] = replace(self.rows[parent], leaf=False)
        calls = self.tree[branch].calls if branch >= 0 else 0
        busy = self.own_totals[branch] + self.other_totals[branch] if branch >= 0 else 0
        row = Row(parent, depth, part.name, part.kind, part.inferred, part.ns, calls, busy, branch, waited=part.waited)
        self.rows.append(row)
        return len(self.rows) - 1

    def _parts_of(self, part: _Part, row: int) -> list[_Part]:
        """What goes below the row of a branch: its children, its waits, and what it holds itself."""
        branch, waited = part.branch, part.waited
        values, totals = (self.others, self.other_totals) if waited else (self.own, self.own_totals)
        children = [c for c in self.children[branch] if totals[c]]
        *amounts, itself = split_exactly(part.ns, [*(totals[c] for c in children), values[branch] - part.shared_ns])
        waits = {c: ns for c, ns in zip(children, amounts, strict=True) if self.tree[c].kind == m.WAIT}
        spans = [self._span(row, c, ns, waited) for c, ns in zip(children, amounts, strict=True) if c not in waits]
        shared: dict[int, int] = {}
        if not waited:
            handed, shared = self._hand_over(branch, row, waits)
            spans += handed
        parts = sorted((p for p in spans if p.ns), key=lambda p: -p.ns)
        rest = {c: ns - shared.get(c, 0) for c, ns in waits.items()}
        parts += [
            _Part(row, self.tree[c].name, WAITING, waited, ns, c, waited, shared.get(c, 0))
            for c, ns in sorted(rest.items(), key=lambda w: -w[1])
            if ns
        ]
        name, kind, guessed = self._rest(branch)
        if itself and (parts or name != ITSELF):
            parts.append(_Part(row, name, kind, waited or guessed, itself, -1, waited))
        return parts

    def _hand_over(self, branch: int, row: int, waits: dict[int, int]) -> tuple[list[_Part], dict[int, int]]:
        """The work other threads did for this branch, out of the time it waited; and what each wait gives up for it."""
        work = [c for c in self.children[branch] if self.tree[c].kind == m.HANDOFF and self.other_totals[c]]
        eligible = [c for c in waits if self.tree[c].name != _OWN_WAIT]
        own = [min(waits[c], self.own[c]) for c in eligible]  # a pause of the garbage collector in it is no waiting
        claim = min(sum(own), sum(self.other_totals[c] for c in work))
        shared = dict(zip(eligible, split_exactly(claim, own), strict=True))
        amounts = split_exactly(claim, [self.other_totals[c] for c in work])
        return [self._span(row, c, ns, True) for c, ns in zip(work, amounts, strict=True)], shared

    def _span(self, row: int, branch: int, ns: int, waited: bool) -> _Part:
        name = HANDED if self.tree[branch].kind == m.HANDOFF else self.tree[branch].name or "(no name)"
        return _Part(row, name, SPAN, waited or self.tree[branch].kind == m.INFERRED, ns, branch, waited)

    def _rest(self, branch: int) -> tuple[str, str, bool]:
        """What a branch's own time is called below its parts, which kind it is, and whether it is inferred."""
        kind, account = self.tree[branch].kind, self.accounts[branch]
        if kind in (m.ROOT, m.HANDOFF):
            return NO_SPAN, UNATTRIBUTED, False
        if account == UNATTRIBUTED:
            return OUTSIDE, UNATTRIBUTED, False
        if account == INFERRED:
            return ITSELF if kind == m.INFERRED else OUTSIDE, SPAN, True
        return ITSELF, WAITING if account == WAITING else SPAN, False
