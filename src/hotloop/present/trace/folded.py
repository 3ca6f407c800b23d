"""The whole run as stacks with weights: collapsed lines, and the speedscope file.

What lives here: views of the ledger's tree, which is complete whatever the limit and the recorder's windows left of the
events. Invariant: the weights of a track are whole nanoseconds that add up to its lifetime.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ...model.ledger import Balance, Ledger
from ...model.session import SessionData
from ..html.names import Names
from .chrome import lane_name, process_name
from .names import SPAN_COST, Stacks, clean, quote
from .timeline import Lane, Timeline

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


@dataclass(frozen=True, slots=True)
class TrackStacks:
    balance: Balance
    weights_ns: list[tuple[int, int]]  # branch, self time
    span_cost_ns: int  # what was subtracted from them


def collapsed(ledger: Ledger) -> Iterator[str]:
    """`outer;inner NANOSECONDS`, a line per branch with time of its own, over all threads and processes."""
    stacks = Stacks(ledger)
    for number, branch in enumerate(ledger.tree):
        if branch.self_ns > 0:
            yield f"{';'.join(_plain(name) for name in stacks.names(number))} {branch.self_ns}\n"
    cost = sum(track.span_cost_ns for track in stacks_by_track(ledger))
    if cost:
        yield f"{';'.join(SPAN_COST)} {cost}\n"


def _plain(name: str) -> str:
    """What separates frames and lines may not be part of a name."""
    shown = "".join(c if c.isprintable() and c != ";" else f"\\u{ord(c):04x}" for c in name)
    return shown.strip() or "(no name)"


def stacks_by_track(ledger: Ledger) -> list[TrackStacks]:
    """Where each track's lifetime went, to the nanosecond."""
    weights: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for shard, track, branch, self_ns in ledger.self_by_track:
        if self_ns > 0:
            weights[shard, track].append((branch, self_ns))
    out = []
    for balance in ledger.balances:
        mine = weights[balance.shard, balance.track]
        out.append(TrackStacks(balance, mine, balance.lifetime_ns - sum(ns for _, ns in mine)))
    return out


def speedscope(session: SessionData, ledger: Ledger, timeline: Timeline) -> Iterator[str]:
    """One sampled profile per track for the whole run, then one evented profile per lane for its latest events."""
    frames = Names()  # stacks refer to them by number
    title = quote(clean(session.name))
    yield f'{{"$schema":"{SCHEMA}","exporter":"hotloop","name":{title},"activeProfileIndex":0,"profiles":[\n'
    stacks = Stacks(ledger)
    names = [process_name(session, index) for index in range(len(session.shards))]
    separator = ""
    for track in stacks_by_track(ledger):
        yield separator
        yield from _sampled(track, f"{names[track.balance.shard]}: {clean(track.balance.name)}, whole run", stacks, frames)
        separator = ",\n"
    for lane in timeline.lanes:
        yield separator
        title = f"{names[lane.shard]}: {lane_name(session.shards[lane.shard], lane)}, latest events"
        yield from _evented(lane, title, session, frames)
        separator = ",\n"
    # Last, because only now all are known; the order of keys means nothing in JSON.
    sites = {clean(label.name): clean(label.site) for shard in session.shards for label in shard.labels if label.site}
    where = {name: f',"file":{quote(site)}' for name, site in sites.items()}
    yield '\n],"shared":{"frames":['
    yield ",\n".join(f'{{"name":{quote(name)}{where.get(name, "")}}}' for name in frames.all())
    yield "]}}\n"


def _sampled(track: TrackStacks, title: str, stacks: Stacks, frames: Names) -> Iterator[str]:
    lifetime = track.balance.lifetime_ns
    yield f'{{"type":"sampled","name":{quote(title)},"unit":"nanoseconds","startValue":0,"endValue":{lifetime},"samples":['
    separator = ""
    for branch, _ in track.weights_ns:
        yield f"{separator}{[frames(name) for name in stacks.names(branch)]}"
        separator = ","
    weights = [ns for _, ns in track.weights_ns]
    if track.span_cost_ns:
        yield f"{separator}{[frames(name) for name in SPAN_COST]}"
        weights.append(track.span_cost_ns)
    yield f'],"weights":{weights}}}'


def _evented(lane: Lane, title: str, session: SessionData, frames: Names) -> Iterator[str]:
    shard = session.shards[lane.shard]
    begin = int(lane.rows["start"][0])
    end = int((lane.rows["start"] + lane.rows["dur"]).max())
    yield f'{{"type":"evented","name":{quote(title)},"unit":"nanoseconds","startValue":{begin},"endValue":{end},"events":[\n'
    number: dict[int, int] = {}
    still_open: list[tuple[int, int]] = []  # end, frame
    separator = ""
    for rows in lane.chunks():
        lines = []
        columns = (rows[name].tolist() for name in ("start", "dur", "path"))
        for start, dur, path in zip(*columns, strict=True):
            while still_open and still_open[-1][0] <= start:
                at, frame = still_open.pop()
                lines.append(f'{{"type":"C","at":{at},"frame":{frame}}}')
            frame = number.get(path, -1)
            if frame < 0:
                frame = number[path] = frames(clean(shard.label_of(path).name))
            lines.append(f'{{"type":"O","at":{start},"frame":{frame}}}')
            still_open.append((start + dur, frame))
        yield separator + ",\n".join(lines)
        separator = ",\n"
    closing = [f'{{"type":"C","at":{at},"frame":{frame}}}' for at, frame in reversed(still_open)]
    yield ",\n".join(["", *closing]) + "]}"
