"""The session as rules see it: the training loop of the main thread in slices, each with its stack, span and time.

What lives here: `Evidence`, made once per session, and the questions rules ask of it. A slice is a sampled stack; its time is
what the recorder measured for its span, shared out among the samples taken there. Invariant: slices add up to the loop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from ...model import phase as ph
from ...model import shard as m
from ...model.code import is_yours
from ...model.mechanism import WAITING
from ...model.probe import Curve
from ..environments import Environment
from ..lines import Stack, guess_phase, phases_of_lines, plain_function
from ..mechanisms import Shares
from ..owners import ENV, FRAMEWORK, YOURS, known_owners, owner_of
from .growth import Growing, growing_labels

if TYPE_CHECKING:
    from ..diagnosis import Diagnosis

_WORK = ("env_step", "backward", "optimizer")
ENV_METHODS = frozenset({"step", "reset", "render", "step_wait", "step_async"})


@dataclass(frozen=True, slots=True)
class Slice:
    index: int
    places: tuple[m.Place, ...]  # outermost first; empty where nothing was sampled
    branch: int
    ns: float
    phase: int
    kind: int
    labels: tuple[str, ...]  # of the spans it is in, outermost first
    mechanisms: Shares = ()  # what its time was spent on; they add up to 1
    samples: int = 0  # that it stands for; 0: its time is known from its span alone
    wants_gil: bool = False  # it could go on, had another thread not the interpreter

    def part(self, mechanism: str) -> float:
        """Of its time, what was spent so."""
        return sum(share for name, share in self.mechanisms if name == mechanism)

    @property
    def label(self) -> str:
        return self.labels[-1] if self.labels else ""

    def inside(self, names: Iterable[str]) -> tuple[m.Place, ...]:
        """The part of the stack from the first function with one of these names on."""
        for i, place in enumerate(self.places):
            if place.function.rpartition(".")[2] in names:
                return self.places[i:]
        return ()


class Evidence:
    def __init__(self, diagnosis: Diagnosis) -> None:
        self.session, self.diagnosis = diagnosis.session, diagnosis
        self.ledger = diagnosis.ledger
        self.main_track = next((b.track for b in self.ledger.balances if b.shard == 0), 0)
        self.loop_ns = max(1, diagnosis.phases.loop_ns - diagnosis.phases.profiler_ns)
        self.stacks = diagnosis.stacks
        self.owners = known_owners(diagnosis.hooks)
        self.mechanisms = diagnosis.mechanisms
        self.counters, self.facts = diagnosis.counters, diagnosis.facts
        self.env_steps = self.counters.get("env_steps", 0)
        self.updates = self.counters.get("updates", 0)
        self.slices = self.lane(0, self.main_track)
        self.claimed: set[int] = set()  # slices that a cause has explained; the engine keeps it

    # ---- slices ----

    def lane(self, shard: int, track: int) -> tuple[Slice, ...]:
        """The slices of one thread."""
        tree = self.ledger.tree
        own: dict[int, int] = defaultdict(int)
        for own_shard, own_track, at, ns in self.ledger.self_by_track:
            if (own_shard, own_track) == (shard, track):
                own[at] += ns
        stacks = [x for x in self.stacks if (x.shard, x.track) == (shard, track) and not x.early]
        blocks = {file: source.blocks for file, source in self.session.sources.items()}
        known = phases_of_lines(stacks, self.ledger)
        seen: dict[int, list[Stack]] = defaultdict(list)
        between: list[Stack] = []
        for stack in stacks:
            (between if tree[stack.branch].kind in (m.ROOT, m.INFERRED) else seen[stack.branch]).append(stack)
        slices: list[Slice] = []

        def add(stack: Stack | None, branch: int, ns: float, phase: int) -> None:
            places, shares = (stack.places, self.mechanisms.of(stack)) if stack else ((), self.mechanisms.decide(branch, ()))
            count, wants = (stack.count, stack.state == m.WANTS_GIL) if stack else (0, False)
            slices.append(
                Slice(len(slices), places, branch, ns, phase, tree[branch].kind, self.labels_of(branch), shares, count, wants)
            )

        gap = 0
        root = next((i for i, b in enumerate(tree) if b.kind == m.ROOT), 0)
        for at, ns in own.items():
            branch = tree[at]
            if branch.phase == ph.STARTUP or branch.kind == m.PROFILER or not ns:
                continue
            if branch.kind in (m.ROOT, m.INFERRED):
                gap += ns
                continue
            total = sum(x.count for x in seen[at])
            if not total:
                add(None, at, ns, branch.phase)
            for stack in seen[at]:
                pause = branch.kind == m.GARBAGE and not branch.phase  # between two calls: the phase of its line
                phase = guess_phase(stack.places, known, blocks) if pause else branch.phase
                add(stack, at, ns * stack.count / total, phase)
        total = sum(x.count for x in between)
        for stack in between:
            add(stack, root, gap * stack.count / total, guess_phase(stack.places, known, blocks))
        if gap and not total:
            add(None, root, gap, 0)
        return tuple(slices)

    def labels_of(self, branch: int) -> tuple[str, ...]:
        names: list[str] = []
        while branch >= 0 and self.ledger.tree[branch].kind != m.ROOT:
            names.append(self.ledger.tree[branch].name)
            branch = self.ledger.tree[branch].parent
        return tuple(reversed(names))

    def share(self, slices: Iterable[Slice]) -> float:
        return sum(x.ns for x in slices) / self.loop_ns

    def where_label(self, *names: str) -> list[Slice]:
        """Slices in a span of one of these labels; `env_step` stands for the label of any phase."""
        wanted = set(names)
        return [x for x in self.slices if any(label in wanted or label.rpartition("/")[2] in wanted for label in x.labels)]

    def expired_part(self, shard: int, track: int, branch: int) -> float:
        """Of a thread's time in a wait, what ended by a time limit, without what was waited for."""
        return self._expired.get((shard, track, branch), 0.0)

    @cached_property
    def _expired(self) -> dict[tuple[int, int, int], float]:
        expired: Counter[tuple[int, int, int]] = Counter()
        whole: Counter[tuple[int, int, int]] = Counter()
        for index, shard in enumerate(self.session.shards):
            for node in shard.nodes:
                if node.expired_ns:
                    key = index, node.track, self.ledger.branch_of[index][node.path]
                    expired[key] += node.expired_ns
                    whole[key] += node.total_ns
        return {key: min(1.0, ns / max(1, whole[key])) for key, ns in expired.items()}

    @property
    def left(self) -> list[Slice]:
        """What no cause has explained yet."""
        return [x for x in self.slices if x.index not in self.claimed]

    @cached_property
    def turns(self) -> int:
        """How often the loop went round at its finest: steps of the environments together, and updates."""
        return max(1, (self.step_calls or self.env_steps) + self.updates)

    @cached_property
    def step_calls(self) -> int:
        """How often the learner stepped its environments, however many at once."""
        return self.calls_of("collect/env_step")

    def curve(self, phase: int) -> Curve | None:
        """What the network that was called most in a phase costs at other sizes, if it could be called with others."""
        curves = [c for c in self.session.probes.curves if c.phase == phase and len(c.points) > 1]
        return max(curves, key=lambda c: c.seen, default=None)

    def calls_of(self, *names: str) -> int:
        """Of these labels, in the learner's process."""
        learner = self.session.shards[0]
        return sum(node.count for node in learner.nodes if learner.label_of(node.path).name in names)

    def where(self, test: Callable[[Slice], bool]) -> list[Slice]:
        return [x for x in self.slices if test(x)]

    @cached_property
    def growing(self) -> list[Growing]:
        """Labels whose cost per env step rises through the run, those that cost most by it first."""
        return growing_labels(self)

    # ---- the script's text ----

    def text(self, place: m.Place) -> str:
        source = self.session.sources.get(place.file)
        return source.text.get(place.line, "") if source else ""

    def text_around(self, place: m.Place) -> list[str]:
        """The text of its function."""
        source = self.session.sources.get(place.file)
        if source is None:
            return []
        last = next((b for name, a, b in source.functions if a == place.first_line), place.line + 20)
        return [source.text.get(n, "") for n in range(place.first_line, min(last, place.first_line + 80) + 1)]

    def loops_around(self, place: m.Place) -> list[str]:
        """The headers of the loops a line is in, within its function, innermost first."""
        return [header for header, _, _ in self.loop_blocks(place)]

    def loop_blocks(self, place: m.Place) -> list[tuple[str, int, int]]:
        """The loops a line is in, within its function, innermost first: header, first and last line of the body."""
        source = self.session.sources.get(place.file)
        return source.loops_around(place.line, place.first_line) if source else []

    @staticmethod
    def is_yours(place: m.Place) -> bool:
        return is_yours(place.file)

    def innermost(self, places: Sequence[m.Place]) -> m.Place | None:
        """The innermost place in the user's own code, if there is one."""
        return next((p for p in reversed(places) if self.is_yours(p)), None)

    def is_script(self, where: m.Place) -> bool:
        return bool(where.file) and owner_of(where.file) == YOURS

    # ---- places ----

    def blame(self, slices: Sequence[Slice], inside: Iterable[str] = (), share: float = 0.5, through: bool = False) -> m.Place:
        """The innermost function of the user's that holds at least this share of the time, with its line that holds most.
        `inside`: only functions called from one of that name, and these. `through`: a line that hands the whole training over
        to a library (`model.learn(…)`) says nothing; the library's function does."""
        totals: Counter[tuple[str, str]] = Counter()
        lines: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        depths: Counter[tuple[str, str]] = Counter()
        names = frozenset(inside)
        for piece in slices:
            places = piece.inside(names) if names else piece.places
            seen: set[tuple[str, str]] = set()
            first = self._handed_over(places) if through else 0
            for depth, place in enumerate(places):
                if not self.is_yours(place) or depth < first:
                    continue
                key = place.file, plain_function(place.function)
                if key in seen:
                    lines[key][place.line] += 1  # a comprehension in it: its line is the nearer one
                    continue
                seen.add(key)
                totals[key] += piece.ns  # type: ignore[assignment]
                lines[key][place.line] += piece.ns  # type: ignore[assignment]
                depths[key] += depth * piece.ns  # type: ignore[assignment]
        whole = sum(x.ns for x in slices)
        large = [key for key in totals if totals[key] >= share * whole]
        if not totals or (through and not large):
            return self._library(slices, names)
        large = large or [totals.most_common(1)[0][0]]
        key = max(large, key=lambda k: depths[k] / max(1e-9, totals[k]))
        return m.Place(*key, lines[key].most_common(1)[0][0])

    def _handed_over(self, places: Sequence[m.Place]) -> int:
        """Where a library has taken over in a stack; 0: nowhere."""
        return max((i + 1 for i, p in enumerate(places) if (p.file, p.function, p.line) in self._hands_over), default=0)

    @cached_property
    def _hands_over(self) -> set[tuple[str, str, int]]:
        """Lines of the user's from which an RL library collects or learns: most of one of the two is done below them."""
        below: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
        whole: Counter[str] = Counter()
        for piece in self.slices:
            part = next((x.rpartition("/")[2] for x in piece.labels if x.rpartition("/")[2] in _WORK), "")
            whole[part] += round(piece.ns)
            for place, inner in pairwise(piece.places) if part else ():
                steps = inner.function.rpartition(".")[2] in ENV_METHODS
                if self.is_yours(place) and not steps and owner_of(inner.file, self.owners) == FRAMEWORK:
                    below[place.file, place.function, place.line][part] += round(piece.ns)
        return {at for at, parts in below.items() if any(2 * ns > whole[part] for part, ns in parts.items())}

    def _library(self, slices: Sequence[Slice], names: Iterable[str] = ()) -> m.Place:
        """Without code of the user's in the stacks: the innermost function of the RL or environment library that holds most,
        else where the samples end."""
        whole = sum(x.ns for x in slices)
        wanted = frozenset(names)
        totals: Counter[tuple[str, str]] = Counter()
        latest: dict[tuple[str, str], tuple[int, int]] = {}
        ends: Counter[m.Place] = Counter()
        for piece in slices:
            places = (piece.inside(wanted) or piece.places) if wanted else piece.places
            for depth, place in enumerate(places):
                if owner_of(place.file, self.owners) in (FRAMEWORK, ENV):
                    key = place.file, plain_function(place.function)
                    totals[key] += piece.ns  # type: ignore[assignment]
                    latest[key] = max(latest.get(key, (0, 0)), (depth, place.line))
            if piece.places:
                ends[piece.places[-1]] += piece.ns  # type: ignore[assignment]
        large = [key for key in totals if totals[key] >= 0.5 * whole]
        if large:
            key = max(large, key=lambda k: latest[k])
            return m.Place(*key, latest[key][1])
        return ends.most_common(1)[0][0] if ends else m.Place()

    def function_slices(self, where: m.Place) -> list[Slice]:
        """Everything that runs in or below a function."""
        wanted = where.file, where.function
        return [x for x in self.slices if any((p.file, plain_function(p.function)) == wanted for p in x.places)]

    # ---- the machine, other lanes ----

    @property
    def host_cores(self) -> int:
        """As `session.json` says, which anyone may have written; 1 where it does not."""
        host = self.session.meta.get("host")
        cores = host.get("cores") if isinstance(host, dict) else None
        return cores if type(cores) is int and cores > 0 else 1

    @cached_property
    def work_of_others_ns(self) -> float:
        """What other threads and processes were at work, together."""
        threads = [(b.shard, b.track) for b in self.ledger.balances if not b.shard and b.track != self.main_track]
        return self._work_of(threads) + self.work_of_processes_ns

    @cached_property
    def work_of_processes_ns(self) -> float:
        return self._work_of([(b.shard, b.track) for b in self.ledger.balances if b.shard])

    def _work_of(self, lanes: Sequence[tuple[int, int]]) -> float:
        return sum(x.ns * (1 - x.part(WAITING)) for lane in lanes for x in self.lane(*lane))

    @cached_property
    def env_lanes(self) -> list[Environment]:
        """The environments that are stepped outside the main thread, one by one."""
        return [x for x in self.diagnosis.environments if (x.shard, x.track) != (0, self.main_track)]
