"""The Chrome trace as JSON, which Perfetto and chrome://tracing open.

What lives here: a timeline as text, piece by piece. Invariants: every time is microseconds since the session's start,
written from whole nanoseconds; complete events of one tid nest and are in order; every pid and tid has a name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...analyse.timeline import TASKS
from ...model import shard as m
from ...model.ledger import Ledger
from ...model.session import ENDED, SEGMENT, SessionData
from .names import Stacks, clean, quote
from .timeline import OPEN, Lane, Timeline

VERSION = 1
MB = 1 << 20
MAX_ID = 1 << 22  # the largest pid Linux gives out; numbers from there on are ours
CATEGORIES = {
    m.USER: "span", m.WAIT: "wait", m.PROFILER: "profiler", m.HANDOFF: "handoff", m.OVERFLOW: "span", m.ROOT: "root",
    m.INFERRED: "span", m.GARBAGE: "garbage",
}  # fmt: skip


def chrome_trace(session: SessionData, ledger: Ledger, timeline: Timeline) -> Iterator[str]:
    """The file, in pieces of some thousand events."""
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    ids = _Ids(session)
    pieces = _events(session, timeline, Stacks(ledger), ids)
    yield next(pieces)
    for piece in pieces:
        yield ",\n" + piece
    yield f'\n],"otherData":{json.dumps(_about(session, timeline))}}}\n'


def _events(session: SessionData, timeline: Timeline, stacks: Stacks, ids: _Ids) -> Iterator[str]:
    lanes: dict[int, list[Lane]] = {index: [] for index in range(len(session.shards))}
    for lane in timeline.lanes:
        lanes[lane.shard].append(lane)
    for index, shard in enumerate(session.shards):
        pid = ids.pids[index]
        yield _name_process(session, index, pid)
        if index == 0 and timeline.gap_ns[1]:
            yield from _gap(timeline, pid, ids.own())
        if shard.iterations:
            yield from _iterations(shard, timeline, pid, ids.own())
        yield from _counters(shard, timeline, pid)
        if index == 0 and session.system:
            yield _system_counters(session, timeline, pid)
        fragments: dict[int, str] = {}
        for place, lane in enumerate(lanes[index], 1):
            tid = ids.of_track(index, lane.track) if not lane.number else ids.own()
            yield _name_thread(pid, tid, lane_name(shard, lane), place)
            yield from _spans(shard, lane, f'"pid":{pid},"tid":{tid}}}', fragments, stacks)


class _Ids:
    """Numbers for processes and threads: the kernel's where each stands for one, else our own."""

    def __init__(self, session: SessionData) -> None:
        self._next = MAX_ID
        self._tids: set[int] = set()
        self._tracks = [{track.id: track.tid for track in shard.tracks} for shard in session.shards]
        seen = Counter(shard.pid for shard in session.shards)
        self.pids = [pid if 0 < pid < MAX_ID and seen[pid] == 1 else self.own() for pid in (x.pid for x in session.shards)]

    def own(self) -> int:
        self._next += 1
        return self._next

    def of_track(self, shard: int, track: int) -> int:
        tid = self._tracks[shard].get(track, 0)
        if not 0 < tid < MAX_ID or tid in self._tids:
            return self.own()
        self._tids.add(tid)
        return tid


def _spans(shard: m.Shard, lane: Lane, place: str, fragments: dict[int, str], stacks: Stacks) -> Iterator[str]:
    for rows in lane.chunks():
        lines = []
        columns = (rows[name].tolist() for name in ("start", "dur", "path", "iteration", "flags"))
        for start, dur, path, iteration, flags in zip(*columns, strict=True):
            head = fragments.get(path)
            if head is None:
                head = fragments[path] = _fragment(shard, path, stacks.path(lane.shard, path))
            note = f'"iteration":{iteration}' if not flags else _note(flags, iteration)
            lines.append(f'{head}{note}}},"ts":{start // 1000}.{start % 1000:03d},"dur":{dur // 1000}.{dur % 1000:03d},{place}')
        yield ",\n".join(lines)


def _fragment(shard: m.Shard, path: int, text: str) -> str:
    """What all events of a path begin with."""
    label = shard.label_of(path)
    return f'{{"name":{quote(clean(label.name))},"cat":"{CATEGORIES[label.kind]}","ph":"X","args":{{"path":{quote(text)},'


def _note(flags: int, iteration: int) -> str:
    if flags & OPEN:
        return '"open":true'
    return f'"iteration":{iteration}' + (',"segment":true' if flags & SEGMENT else "")


def lane_name(shard: m.Shard, lane: Lane) -> str:
    name = next((track.name for track in shard.tracks if track.id == lane.track), f"track {lane.track}")
    if lane.track == TASKS:
        name = "tasks, awaiting"
    if lane.number:
        name = f"{clean(name)} (overlapping{f' {lane.number}' if lane.number > 1 else ''})"
    return name


def process_name(session: SessionData, index: int) -> str:
    process = session.processes[index]
    name = clean(process.name or (session.name if index == 0 else "python"))
    return name if process.state == ENDED else f"{name} ({process.state})"


def _name_process(session: SessionData, index: int, pid: int) -> str:
    name = _meta("process_name", pid, pid, name=process_name(session, index))
    return f"{name},\n{_meta('process_sort_index', pid, pid, sort_index=index)}"


def _name_thread(pid: int, tid: int, name: str, place: int) -> str:
    return f"{_meta('thread_name', pid, tid, name=clean(name))},\n{_meta('thread_sort_index', pid, tid, sort_index=place)}"


def _meta(what: str, pid: int, tid: int, **args: Any) -> str:
    return _line({"name": what, "ph": "M", "pid": pid, "tid": tid, "ts": 0, "args": args})


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"), allow_nan=False)


def _complete(name: str, category: str, start: int, end: int, pid: int, tid: int, args: dict[str, Any]) -> str:
    head = _line({"name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid, "args": args})
    return f'{head[:-1]},"ts":{_us(start)},"dur":{_us(end - start)}}}'


def _counter(name: str, at: int, pid: int, unit: str, value: float) -> str:
    return f'{_line({"name": name, "ph": "C", "pid": pid, "tid": pid, "args": {unit: value}})[:-1]},"ts":{_us(at)}}}'


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _gap(timeline: Timeline, pid: int, tid: int) -> Iterator[str]:
    """Says in the picture itself that something is missing."""
    start, end = (timeline.since_base(at) for at in timeline.gap_ns)
    yield _name_thread(pid, tid, "left out", -2)
    yield _complete(f"{timeline.left_out:,} events left out (--limit)", "left out", start, max(start, end), pid, tid, {})


def _iterations(shard: m.Shard, timeline: Timeline, pid: int, tid: int) -> Iterator[str]:
    yield _name_thread(pid, tid, "iterations", -1)
    lines = []
    until = 0
    for row in shard.iterations:
        start = max(until, timeline.since_base(row.start_ns))
        until = max(start, timeline.since_base(row.end_ns))
        name = f"iteration {row.first}" if row.merged == 1 else f"iterations {row.first} to {row.first + row.merged - 1}"
        counts = {clean(key): value for key, value in row.counts.items()}
        args = {"first": row.first, "merged": row.merged, "counts": counts}
        lines.append(_complete(name, "iteration", start, until, pid, tid, args))
    yield ",\n".join(lines)


def _counters(shard: m.Shard, timeline: Timeline, pid: int) -> Iterator[str]:
    """Rates per iteration (a counter holds until its next value), memory where it was read."""
    lines = []
    names = {name for row in shard.iterations for name in row.counts}
    for row in shard.iterations:
        at, took = timeline.since_base(row.start_ns), row.end_ns - row.start_ns
        for name in sorted(names) if took > 0 else ():
            rate = row.counts.get(name, 0) / took * 1e9
            lines.append(_counter("SPS" if name == "env_steps" else f"{clean(name)} per second", at, pid, "per second", rate))
    for reading in shard.snapshots:
        at = timeline.since_base(reading.time_ns)
        lines.append(_counter("memory", at, pid, "MB", reading.rss_bytes / MB))
        if reading.peak_bytes:
            lines.append(_counter("memory peak of a span", at, pid, "MB", reading.peak_bytes / MB))
    gpu = max((node.gpu_peak_bytes for node in shard.nodes), default=0)
    if gpu:  # a shard knows the height of the peak, not its time
        times = (timeline.since_base(at) for at in (shard.start_ns, shard.end_ns))
        lines += [_counter("GPU memory, peak of the run", at, pid, "MB", gpu / MB) for at in times]
    if lines:
        yield ",\n".join(lines)


_SYSTEM = {
    "cpu_percent": ("CPU of the processes", "% of a core"),
    "rss_mb": ("memory of the processes", "MB"),
    "gpu_percent": ("GPU busy", "%"),
    "gpu_memory_mb": ("GPU memory", "MB"),
}


def _system_counters(session: SessionData, timeline: Timeline, pid: int) -> str:
    """The sidecar's samples; each stands for the time before it, so it begins there."""
    main = session.shards[0]
    lines = []
    for row in session.system:
        since_start_ns = round((row["unix_s"] - row["seconds"]) * 1e9) - main.start_unix_ns
        at = timeline.since_base(main.start_ns + since_start_ns)
        lines += [_counter(name, at, pid, unit, row[key]) for key, (name, unit) in _SYSTEM.items() if key in row]
    return ",\n".join(lines)


def _about(session: SessionData, timeline: Timeline) -> dict[str, Any]:
    main = session.shards[0]
    about: dict[str, Any] = {
        "version": VERSION,
        "session": clean(session.name),
        "spans_recorded": sum(shard.recorded for shard in session.shards),
        "events_recorded": timeline.there,
        "events_written": timeline.written,
        "events_left_out": timeline.left_out,
        "start_unix_ns": str(main.start_unix_ns + timeline.base_ns - main.start_ns),  # a number would lose its last digits
    }
    if timeline.gap_ns[1]:
        about["left_out_us"] = [timeline.since_base(at) / 1000 for at in timeline.gap_ns]
    try:
        about["started"] = datetime.fromtimestamp(main.start_unix_ns / 1e9, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        pass  # a damaged file's idea of the date
    return about
