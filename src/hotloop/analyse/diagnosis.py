"""The diagnosis: one object that every verb and every view gets its numbers from.

What lives here: session in, `Diagnosis` out; no I/O, no formatting. What describes one process describes the learner, the first
of the session's processes (model/job.py); the rest is of the whole job. What takes long to find (findings, iterations, the
timeline) is found when it is first asked for, and once. Invariant: every share is of the wall time and none is above 1; the
four parts of each track add up to its lifetime.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..model import shard as m
from ..model.device import Operators, Transfer
from ..model.finding import Finding
from ..model.history import History
from ..model.job import FACT, count_work, find_learners, fold_job, head_ns, job_loop_ns
from ..model.ledger import Ledger, MemoryReading, Operation, list_readings, memory_method, windowed_rate
from ..model.numbers import Numbers, rate_of
from ..model.session import DIED, Process, SessionData, Source
from ..model.sheet import Sheet, make_sheet
from .costs import Costs
from .devices import Devices, summarise_devices, summarise_reads
from .environments import Environment, find_stragglers, list_environments
from .findings.engine import check_causes, find_claims
from .findings.evidence import Evidence
from .iterations import Iterations, read_iterations
from .limits import Claim, Limits, find_limits
from .lines import Line, Stack, fold_lines, list_lines, read_stacks
from .mechanisms import Mechanisms
from .owners import Owners, known_owners, owners_between, share_out
from .phases import Phases, find_phases
from .timeline import Timeline, make_timeline
from .unions import exact_across_processes


@dataclass(frozen=True, slots=True)
class Quality:
    """How far the numbers can be trusted."""

    attempted: int
    recorded: int
    open_spans: int
    dropped: int
    losses: dict[str, int]
    own_cost_ns: float
    own_cost_error_ns: float
    profiler_share: float
    native: bool
    memory_method: str
    events_kept: int
    held_across_yield: dict[str, str]
    died: tuple[int, ...]  # pids
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    session: SessionData = field(repr=False)  # for the analysis; a view that reads it would decide something by itself
    select: Collection[str]  # causes to look for; none: all
    ignore: Collection[str]
    history: History = field(repr=False)
    wall_ns: int
    loop_ns: int
    sps: float | None  # env steps of the job a second, over the whole loop
    sps_latest: float | None  # over the latest iterations of the learner, where it steps the environments itself
    learners: int  # processes that learn
    first_work_ns: int  # when the loop began, by the clock all processes share
    counters: dict[str, int]
    facts: dict[str, int]  # what the hooks saw now and then: batch sizes, autograd, number types
    operations: tuple[Operation, ...]
    ledger: Ledger
    sheet: Sheet | None  # of the main track; None before its first event
    owners: dict[str, int]  # nanoseconds of the main track
    sites: dict[str, str]  # label -> file:line where it was first opened
    quality: Quality
    stacks: tuple[Stack, ...] = field(repr=False)  # every distinct stack
    phases: Phases  # of the main track
    mechanisms: Mechanisms = field(repr=False)
    lines: tuple[Line, ...]
    environments: tuple[Environment, ...]
    stragglers: tuple[Environment, ...]  # those that make the others wait
    resources: dict[str, float]  # what was used of the machine, as far as the session says
    devices: Devices | None  # what the processes' devices did
    reads: tuple[Transfer, ...]  # lines that take tensors of the CPU apart

    @property
    def name(self) -> str:
        return self.session.name

    @property
    def path(self) -> str:
        return str(self.session.path)

    @property
    def meta(self) -> dict[str, Any]:
        return self.session.meta

    @property
    def start_unix_ns(self) -> int:
        return self.learner.start_unix_ns

    @property
    def end_unix_ns(self) -> int:
        """When the recording ended, or was last written."""
        return self.start_unix_ns + max(0, self.learner.end_ns - self.learner.start_ns)

    @property
    def memory_readings(self) -> list[MemoryReading]:
        return [reading for shard in self.session.shards for reading in list_readings(shard)]

    @property
    def processes(self) -> tuple[Process, ...]:
        return self.session.processes

    @property
    def hooks(self) -> tuple[dict[str, str], ...]:
        return self.session.hooks

    @property
    def sources(self) -> Mapping[str, Source]:
        return self.session.sources

    @property
    def operators(self) -> Operators | None:
        """Of a deep window."""
        return self.session.operators

    @property
    def learner(self) -> m.Shard:
        return self.session.shards[0]

    @property
    def rows(self) -> tuple[m.Iteration, ...]:
        """The iterations as they were recorded, short ones several in a row."""
        return self.learner.iterations

    @property
    def iterations_closed(self) -> int:
        return self.learner.iterations_closed

    @property
    def numbers(self) -> Numbers:
        """The learner's time, as every view tells it."""
        return self.phases.numbers

    @property
    def user_operations(self) -> list[Operation]:
        """Those of spans that were opened at all: no waits, none of our own."""
        return [o for o in self.operations if o.kind in (m.USER, m.OVERFLOW) and (o.calls or o.open)]

    @cached_property
    def main_lines(self) -> tuple[Line, ...]:
        """Of the main track, most seen first; shares are of the loop."""
        return fold_lines(line for line in self.lines if self._is_main(line))

    @cached_property
    def other_lines(self) -> tuple[Line, ...]:
        """Of all other threads and processes together, as far as they were at work; shares are of what is listed."""
        waits = {b.name for b in self.ledger.tree if b.kind == m.WAIT}
        others = (line for line in self.lines if not self._is_main(line) and (line.phase or line.span not in waits))
        return fold_lines(others, at_work=True)

    @cached_property
    def iterations(self) -> Iterations | None:
        """What the learner's iterations say; None without any."""
        return read_iterations(self.learner)

    @cached_property
    def timeline(self) -> Timeline:
        return make_timeline(self.session)

    @cached_property
    def evidence(self) -> Evidence:
        """The loop in slices, as the rules see it."""
        return Evidence(self)

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        return find_claims(self, self.select, self.ignore)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What slows this run down, largest gain first."""
        return tuple(claim.finding for claim in self.claims)

    @cached_property
    def limits(self) -> Limits:
        """How far the loop is from what this machine could do."""
        return find_limits(self, self.claims)

    def _is_main(self, line: Line) -> bool:
        main = self.ledger.balances[0] if self.ledger.balances else None
        return main is not None and (line.shard, line.track) == (main.shard, main.track)


def diagnose(
    session: SessionData, select: Collection[str] = (), ignore: Collection[str] = (), history: History | None = None
) -> Diagnosis:
    """Everything there is to say about one session. `select` and `ignore` name causes; `history`: what predictions came to."""
    check_causes((*select, *ignore))
    ledger = fold_job(session.shards)
    main = session.shards[0]
    balance = next((b for b in ledger.balances if b.shard == 0), None)
    sheet = make_sheet(ledger, balance) if balance else None
    sites = {x.name: x.site for s in reversed(session.shards) for x in s.labels if x.site}
    work = count_work(session.shards)
    environments = list_environments(session)
    stacks = read_stacks(session.shards, ledger)
    blocks = {file: source.blocks for file, source in session.sources.items()}
    phases = find_phases(ledger, stacks, blocks)
    loop_ns = job_loop_ns(session.shards, phases.numbers)
    costs = Costs(stacks, ledger, session.sources, loop_ns)
    mechanisms = Mechanisms(stacks, ledger, session.sources, known_owners(session.hooks), costs)
    return Diagnosis(
        session=session,
        select=select,
        ignore=ignore,
        history=history or History(),
        wall_ns=balance.lifetime_ns if balance else main.end_ns - main.start_ns,
        loop_ns=loop_ns,
        sps=rate_of(work.get("env_steps", 0), loop_ns),
        sps_latest=windowed_rate(main.iterations, "env_steps"),
        learners=len(find_learners(session.shards)),
        first_work_ns=main.first_work_ns - head_ns(session.shards),
        counters={name: n for name, n in work.items() if not name.startswith(FACT)},
        facts={name[1:]: n for name, n in work.items() if name.startswith(FACT)},
        operations=exact_across_processes(session, ledger.operations),
        ledger=ledger,
        sheet=sheet,
        owners=_share_out(sheet, sites, ledger, stacks, balance.track, known_owners(session.hooks))
        if sheet and balance
        else {},
        sites=sites,
        quality=_quality(session, ledger),
        stacks=stacks,
        phases=phases,
        mechanisms=mechanisms,
        lines=list_lines(stacks, ledger, blocks, mechanisms.of),
        environments=environments,
        stragglers=find_stragglers(environments, balance.track if balance else 0),
        resources=_resources(session.meta),
        devices=summarise_devices(session),
        reads=summarise_reads(session),
    )


def _resources(meta: dict[str, Any]) -> dict[str, float]:
    """From `session.json`, which anyone may have written: plain finite numbers only."""
    said = meta.get("resources")
    if not isinstance(said, dict):
        return {}
    keys = (
        "wall_s", "cpu_s", "cores", "peak_memory_mb", "gpu_peak_mb", "cpu_mean", "cpu_peak", "rss_mean", "rss_peak", "gpu_mean",
        "gpu_peak", "gpu_memory_mean", "gpu_memory_peak", "samples", "sampled_s",
    )  # fmt: skip
    numbers = {key: said[key] for key in keys if type(said.get(key)) in (int, float)}
    return {key: value for key, value in numbers.items() if 0 <= value < 1e15}


def _share_out(
    sheet: Sheet, sites: dict[str, str], ledger: Ledger, stacks: Sequence[Stack], track: int, known: Owners
) -> dict[str, int]:
    """The main track's time by owner."""
    files = {name: site.rpartition(":")[0] for name, site in sites.items()}
    main = (
        (x.branch, x.places[-1].file, x.count) for x in stacks if x.places and (x.shard, x.track, x.early) == (0, track, False)
    )
    return share_out(sheet, files, ledger.tree, owners_between(main, ledger.tree, known), known)


def _quality(session: SessionData, ledger: Ledger) -> Quality:
    losses: dict[str, int] = {}
    for shard in session.shards:
        for name, count in shard.losses.items():
            losses[name] = losses.get(name, 0) + count
    main = session.shards[0]
    lifetime = sum(b.lifetime_ns for b in ledger.balances)
    return Quality(
        attempted=sum(x.attempted for x in session.shards),
        recorded=sum(x.recorded for x in session.shards),
        open_spans=sum(x.open_count for x in session.shards),
        dropped=sum(x.dropped for x in session.shards),
        losses=losses,
        own_cost_ns=(main.cost_inside_ps + main.cost_outside_ps) / 1000,
        own_cost_error_ns=main.cost_error_ps / 1000,
        profiler_share=sum(b.profiler_ns for b in ledger.balances) / lifetime if lifetime else 0.0,
        native=main.native,
        memory_method=memory_method(main, ledger.operations),
        events_kept=len(session.events),
        held_across_yield={x.name: x.held_across_yield for s in session.shards for x in s.labels if x.held_across_yield},
        died=tuple(p.pid for p in session.processes if p.state == DIED),
        problems=session.problems,
    )
