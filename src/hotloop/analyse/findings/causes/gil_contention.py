"""Another Python thread holds the interpreter.

What to do: if that thread polls, let it block (`queue.get()` instead of `while queue.empty(): pass`). Else do its work less
often, or move it into a process (`multiprocessing.Process`) and send it what it needs through a queue.

A thread that computes in Python (a monitor, a loader, a logger) holds Python's global lock, the GIL: training cannot run.

Recognised by: HotLoop asks the operating system about a hundred times a second what the training thread does. The finding
appears if it waits for the GIL in 5 % of these checks or more; it names the thread that held the GIL most often then. If the
training itself runs in several threads, the loss is the work they could have done on idle cores without the GIL. A thread
that sits in a C library and waits, or computes in C without the GIL, is never blamed. Without the C extension HotLoop cannot
see who holds the GIL: then a thread of yours is named that was busy in a quarter of the checks or more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ....model import phase as ph
from ....model import shard as m
from ....model.shard import Place
from ...lines import AT_WORK, Stack
from ..evidence import Evidence
from ..rule import Candidate, Expected, percent, predict

TURN = 25
ACTION = "let that thread block instead of polling, do its work less often, or move it into a process"
# Origin: healthy scripts of tests/diagnosis show 0 to 0.3 %, threads that wait for a server 2.5 %; beside a thread that is at
# work 4 % of the time it is 1 %, at 10 % it is 7 % (a planted thread on a shared two-core machine).
LEAST_LOST = 0.05
LEAST_BUSY = 0.25  # where only the processor time is known; kept from the rule before states were measured
_FEW = 50  # samples of the training thread that say too little
_IDLE = frozenset({
    "wait", "acquire", "get", "select", "poll", "accept", "recv", "_recv", "sleep", "join", "_wait_for_tstate_lock", "result",
    "readline", "_read", "_worker",
})  # fmt: skip
_LOOP = frozenset({ph.COLLECT, ph.LEARN})


def find(e: Evidence) -> Candidate | None:
    stacks = [x for x in e.stacks if x.shard == 0 and not x.early]
    main = [x for x in stacks if x.track == e.main_track]
    others = [x for x in stacks if x.track != e.main_track]
    if not others or not main:
        return None
    known = any(x.state != m.UNKNOWN for x in main)
    if known and e.session.shards[0].native and any(x.holds_gil for x in stacks):
        return _measured(e, main, others)
    return _estimated(e, others, (lambda x: x.state in AT_WORK) if known else lambda x: _seems_at_work(e, x))


# ---- who wants the interpreter, and who has it ----


def _measured(e: Evidence, main: Sequence[Stack], others: Sequence[Stack]) -> Candidate | None:
    total = _count(main)
    if total < _FEW:
        return None
    holding = [x for x in others if x.holds_gil]
    if not holding:
        return None
    where = _most_seen(e, holding)
    held = min(1.0, _count(holding) / total)
    lost = _count(x for x in main if x.state == m.WANTS_GIL) / total
    most = max(lost, min(held, lost + _woken(main) / total))
    title = f"the training thread waits for the GIL {percent(lost)} of the time: another thread has it, in {where.function}"
    said = f"{percent(lost)} of {total:,} samples of the training thread found it waiting for the interpreter"
    if lost < LEAST_LOST:
        blocked = _count(x for x in main if x.state == m.BLOCKED) / total
        training = [x for x in others if e.ledger.tree[x.branch].phase in _LOOP]
        lost = most = blocked * _lost_among(e, training, total) if blocked > 0.5 else 0.0
        title = f"the threads that train take the GIL from each other, most often in {where.function}"
        wanting = _count(x for x in training if x.state == m.WANTS_GIL) / total
        said = f"the main thread waits for them, and on average {wanting:.1f} of them wait for the interpreter"
    if lost < LEAST_LOST:
        return None
    return Candidate(
        title,
        where,
        "wait",
        tuple(x for x in e.left if x.wants_gil),
        share=lost,
        gain=_gain(lost, most),
        evidence=(said, f"other threads had the interpreter in {percent(held)} of the samples"),
        mechanism=_mechanism(e, holding),
    )


def _mechanism(e: Evidence, stacks: Iterable[Stack]) -> str:
    """What those who have the interpreter do with it most."""
    spent: Counter[str] = Counter()
    for x in stacks:
        for name, share in e.mechanisms.of(x):
            spent[name] += round(1000 * share * x.count)
    return spent.most_common(1)[0][0]


def _woken(main: Sequence[Stack]) -> int:
    """Samples at which it was ready without the interpreter, where it is also seen waiting for it: after each 5 ms of waiting a
    thread wakes up, and needs a core to find that it must wait on. Or it computes there in C; nothing tells the two apart."""
    waits = {x.places for x in main if x.state == m.WANTS_GIL}
    return _count(x for x in main if x.state == m.RUNNING and not x.holds_gil and x.places in waits)


def _gain(lost: float, most: float) -> Expected:
    """All that is lost goes with the other thread: between what was seen, and that with the moments it was woken."""
    return predict((lost + most) / 2, 1.0)


def _lost_among(e: Evidence, stacks: Sequence[Stack], ticks: int) -> float:
    """Of the time of threads that train side by side: what those that want the interpreter could do on idle cores."""
    wanting = _count(x for x in stacks if x.state == m.WANTS_GIL) / ticks
    running = _count(x for x in stacks if x.state == m.RUNNING) / ticks
    could = min(float(e.host_cores), running + wanting)
    return max(0.0, 1 - running / could) if could > 0 else 0.0


# ---- without that ----


def _estimated(e: Evidence, others: Sequence[Stack], at_work: Callable[[Stack], bool]) -> Candidate | None:
    early = sum(x.count for x in e.stacks if x.shard == 0 and x.early and x.track == e.main_track)
    ticks = max(1, e.session.shards[0].samples.ticks - early)
    yours = {_thread(x) for x in others if e.innermost(x.places) is not None}
    busy = [
        x
        for x in others
        if _thread(x) in yours
        and e.ledger.tree[x.branch].kind != m.WAIT
        and at_work(x)
        and not any(label.endswith("env_step") for label in e.labels_of(x.branch))  # how the script works
    ]
    share = min(1.0, _count(busy) / ticks)
    if share < LEAST_BUSY:
        return None
    where, lost = _most_seen(e, busy), share * 0.5
    return Candidate(
        f"another thread computes in Python {percent(share)} of the time, in {where.function}, "
        "and takes the interpreter from training",
        where,
        "wait",
        share=lost,
        gain=predict(lost, 0.9),
        evidence=(f"it was at work in {percent(share)} of {ticks:,} samples",),
    )


def _thread(x: Stack) -> tuple[int, str, str]:
    """The thread of a sample; those without spans share a number, and are told apart by where they begin."""
    first = next((p for p in x.places if not p.file.endswith("threading.py")), x.places[0])
    return (x.track, "", "") if x.track >= 0 else (-1, first.file, first.function)


def _seems_at_work(e: Evidence, x: Stack) -> bool:
    last = x.places[-1]
    known_wait = any(word in e.text(last) for word in (".sleep(", ".wait(", ".get(", ".acquire("))
    return last.function.rpartition(".")[2] not in _IDLE and not known_wait


def _count(stacks: Iterable[Stack]) -> int:
    return sum(x.count for x in stacks)


def _most_seen(e: Evidence, stacks: Sequence[Stack]) -> Place:
    """The function of the user's these are most in, else the innermost; with its line that is seen most."""
    seen: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], Counter[int]] = {}
    for x in stacks:
        own = e.innermost(x.places) or x.places[-1]
        key = own.file, own.function
        seen[key] += x.count
        lines.setdefault(key, Counter())[own.line] += x.count
    ((file, function), _), *_ = seen.most_common(1)
    return Place(file, function, lines[file, function].most_common(1)[0][0])
