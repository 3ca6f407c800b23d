"""Reading a shard's bytes into plain data: tables, journal, open spans. Standard library only.

What lives here: the inverse of the recorder, used by the training process for its own summaries and by the reader for
everything but events. Invariant: whatever the bytes are, the answer is the longest valid part with the reasons in
`problems`, or one UnreadableError. No time in the answer is negative, lies outside the recording or is longer than it:
what is, is left out and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..errors import UnreadableError
from ..model import shard as m
from ..model.histogram import bucket_of
from . import schema as s
from .blocks import LIVE_SPANS, MAX_BYTES, MAX_NS, U32, Blocks, Lifetime
from .rows import read_counters, read_iterations, read_snapshots
from .samples import read_samples

_NO_HISTOGRAM = (0,) * s.HIST_BUCKETS
_MAX_COST_PS = 10**9  # a millisecond a span
_MAX_ERRNO = 4095
_MAX_DEPTH, _MAX_STEPS = 400, 4 << 20  # of paths: what is made of them takes depth times their number
_NAME_CHARS, _PATH_CHARS = 128, 16 << 20
_ALONE = 2  # a flag in older sessions: the label has one node, whose total time is its union


def decode(data: bytes) -> m.Shard:
    """A shard from its bytes."""
    d = Blocks(data)
    h = d.head
    raw_labels = d.items(s.LABELS)
    paths = _paths(d, len(raw_labels))
    tracks_raw = d.items(s.TRACKS)
    lifetime = _lifetime(d, tracks_raw)
    nodes, shifts = _nodes(d, len(tracks_raw), len(paths), lifetime)
    union_redo: dict[int, int] = {}
    for number, track in enumerate(tracks_raw):
        _redo(d, number, track, nodes, paths, union_redo)
    if not lifetime.ended:
        lifetime = lifetime._replace(end_ns=_last_seen(lifetime, tracks_raw, nodes, d))
    _keep_possible(d, nodes, shifts, lifetime)
    open_spans = _open_spans(d, tracks_raw, nodes, len(paths), lifetime)
    tracks = _tracks(d, tracks_raw, nodes, lifetime)
    labels = _labels(d, raw_labels, paths, nodes, open_spans, union_redo, lifetime)
    counters = read_counters(d)
    if h[s.H_RING_HEAD] and not any(b.kind == s.RING for b in d.blocks):
        d.problems.append("the latest events are missing")
    rows, closed = read_iterations(d, len(paths), len(tracks), [name for name, _ in counters], lifetime)
    shard = m.Shard(
        id=h[s.H_SHARD_ID], pid=h[s.H_PID], parent_pid=h[s.H_PARENT_PID], parent_shard=h[s.H_PARENT_SHARD],
        name=d.name(h[s.H_NAME], h[s.H_NAME_BYTES]), epoch=h[s.H_EPOCH], native=bool(h[s.H_NATIVE]), clock=h[s.H_CLOCK],
        start_ns=lifetime.start_ns, start_unix_ns=d.word(s.H_START_UNIX_NS, 1 << 62, "date"), end_ns=lifetime.end_ns,
        ended=lifetime.ended, process_start=h[s.H_PROC_START], paused_ns=d.word(s.H_PAUSED_NS, lifetime.most_ns, "time paused"),
        cost_inside_ps=d.word(s.H_COST_INSIDE_PS, _MAX_COST_PS, "cost of a span"),
        cost_outside_ps=d.word(s.H_COST_OUTSIDE_PS, _MAX_COST_PS, "cost of a span"),
        cost_error_ps=d.word(s.H_COST_ERROR_PS, _MAX_COST_PS, "error of the cost"), peak_method=h[s.H_PEAK_METHOD],
        disk_errno=d.word(s.H_DISK_ERRNO, _MAX_ERRNO, "error number"),
        first_work_ns=d.instant(s.H_FIRST_WORK_NS, lifetime, "first step"),
        last_work_ns=d.instant(s.H_LAST_WORK_NS, lifetime, "last step"), iterations_closed=closed,
        ring_events=d.word(s.H_RING_HEAD, MAX_NS, "number of events"),
        logged_events=sum(b.used for b in d.blocks if b.kind == s.EVENTS),
        labels=labels, paths=tuple(paths), nodes=tuple(node for node in nodes if node is not None), tracks=tracks,
        open_spans=tuple(open_spans), lifted=d.word(s.H_LIFTED, sum(t.entered for t in tracks), "number of suspended spans"),
        counters=dict(counters), iterations=rows,
        losses={name: h[s.H_LOSSES + i] for i, name in enumerate(s.LOSSES) if h[s.H_LOSSES + i]},
        snapshots=read_snapshots(d, len(paths), lifetime), samples=read_samples(d, len(paths), len(tracks)),
        envs=_envs(h, labels, len(tracks), lifetime),
    )  # fmt: skip
    d.left_out(d.unreadable_names, "names cannot be read")
    if shard.ended and shard.attempted != (found := shard.recorded + shard.dropped + shard.open_count):
        d.problems.append(f"{shard.attempted} spans were begun, but {found} are accounted for")
    return replace(shard, problems=tuple(d.problems))


def _envs(head: Sequence[int], labels: tuple[m.Label, ...], tracks: int, lifetime: Lifetime) -> tuple[m.Env, ...]:
    """The environments that were stepped; impossible ones are left out."""
    found = []
    for i in range(s.ENV_SLOTS):
        at = s.H_ENVS + i * s.ENV_WORDS
        steps, ns, track, label = head[at : at + s.ENV_WORDS]
        if steps and 0 < track <= tracks and steps < 1 << 48 and ns <= lifetime.most_ns:
            found.append(m.Env(steps, ns, track - 1, labels[label - 1].name if 0 < label <= len(labels) else ""))
    return tuple(found)


def _lifetime(d: Blocks, tracks: list[tuple[int, ...]]) -> Lifetime:
    """What the header says of beginning and end. Without an end, the latest there can be."""
    start, end = d.head[s.H_START_NS], d.head[s.H_END_NS]
    if start > MAX_NS:
        d.problems.append("the time of the start is impossible; that of the first thread is taken")
        start = min((birth for birth, _ in map(_life, tracks) if birth <= MAX_NS), default=0)
    if end and not start <= end <= MAX_NS:
        d.problems.append("the time of the end is impossible; the latest instant seen is taken")
        end = 0
    return Lifetime(start, end or MAX_NS, bool(end))


def _paths(d: Blocks, labels: int) -> list[m.Path]:
    paths: list[m.Path] = []
    depths: list[int] = []
    deep = 0
    items = d.items(s.PATHS)
    most = max(16, min(_MAX_DEPTH, _MAX_STEPS // max(1, len(items))))
    for parent, label, shard, path, _ in items:
        parent = parent if paths else 0
        if label >= labels or (paths and parent >= len(paths)):
            d.problems.append(f"path {len(paths)} refers to what is not there; it and what follows are left out")
            break
        if paths and depths[parent] >= most:
            parent = paths[parent].parent
            deep += 1
        depths.append(depths[parent] + 1 if paths else 0)
        paths.append(m.Path(parent, label, (shard, path) if shard else None))
    d.left_out(deep, f"paths are nested more than {most} deep; they are shown at that depth")
    if not paths:
        raise UnreadableError("the shard holds no paths; the process died before its first span")
    return paths


def _nodes(d: Blocks, tracks: int, paths: int, lifetime: Lifetime) -> tuple[list[m.Node | None], list[int]]:
    """The nodes, with None for those left out, and how often their histograms were halved."""
    nodes: list[m.Node | None] = []
    shifts: list[int] = []
    bad = 0
    for item in d.items(s.NODES):
        track, path, count, self_ns, total, least, most, sumsq, shift, *measured = item[: -s.HIST_BUCKETS]
        shifts.append(shift)
        if track >= tracks or path >= paths or self_ns > lifetime.most_ns:
            nodes.append(None)
            bad += bool(count or self_ns)  # one without any is of a track that was being made
            continue
        least, histogram = least if count else 0, item[-s.HIST_BUCKETS :]
        readings = dict(zip(m.READINGS, measured, strict=False))  # the last words are reserved
        nodes.append(m.Node(track, path, count, self_ns, total, least, most, sumsq, histogram, **readings))
    d.left_out(bad, "nodes with impossible values are left out")
    return nodes, shifts


def _redo(
    d: Blocks, number: int, track: tuple[int, ...], nodes: list[m.Node | None], paths: list[m.Path], unions: dict[int, int]
) -> None:
    """Complete the span that was being closed when the process died: its new values are in the journal."""
    if not track[s.T_STATE] & 1:
        return
    which, duration, count, total, sumsq, hist, union = track[s.T_JOURNAL : s.T_STATE]
    node = nodes[which] if which < len(nodes) else None
    # Any part of it may have been copied to the node already; nothing else can have changed there.
    if node is None or node.track != number or count - node.count not in (0, 1) or not 0 <= total - node.total_ns <= duration:
        d.problems.append("a span was being closed, but its journal does not fit; it is left out")
        return
    histogram = list(node.histogram)
    histogram[bucket_of(duration)] = hist & U32
    nodes[which] = replace(
        node, count=count, total_ns=total, sumsq=sumsq, histogram=tuple(histogram),
        min_ns=min(node.min_ns, duration) if node.count else duration, max_ns=max(node.max_ns, duration),
    )  # fmt: skip
    unions[paths[node.path].label] = union


def _keep_possible(d: Blocks, nodes: list[m.Node | None], shifts: list[int], lifetime: Lifetime) -> None:
    """Of a node whose numbers cannot be, only its self time stays; on a track that outlives the recording, what fits."""
    bad = 0
    for i, node in enumerate(nodes):
        if node is not None and not _is_possible(node, shifts[i], lifetime):
            nodes[i] = m.Node(node.track, node.path, 0, node.self_ns, 0, 0, 0, 0.0, _NO_HISTOGRAM)
            bad += 1
    d.left_out(bad, "nodes hold impossible numbers; only their self time is kept")
    over = {track: ns - lifetime.most_ns for track, ns in _self_by_track(nodes).items() if ns > lifetime.most_ns}
    if over:
        d.problems.append(f"{len(over)} tracks hold more time than the recording; their largest nodes are left out")
        largest = sorted(((node.self_ns, i, node.track) for i, node in enumerate(nodes) if node is not None), reverse=True)
        for self_ns, i, track in largest:
            if over.get(track, 0) > 0:
                over[track] -= self_ns
                nodes[i] = None


def _is_possible(node: m.Node, shift: int, lifetime: Lifetime) -> bool:
    count, most = node.count, lifetime.most_ns
    if not count:
        return not node.total_ns and not node.sumsq
    counted = sum(node.histogram)
    return (
        node.min_ns <= node.max_ns <= most
        and node.total_ns <= count * (node.max_ns if lifetime.ended else most)
        and max(node.cpu_ns, node.cpu_wall_ns) <= count * most
        and 0 <= node.sumsq <= 1.001 * count * most * most  # false for NaN too
        and max(node.rise_max_bytes, node.rss_max_bytes, node.gpu_peak_bytes) <= MAX_BYTES
        and node.rise_sum_bytes <= MAX_BYTES * (node.peak_readings + node.end_readings)
        and (
            abs(count - counted) <= (0 if lifetime.ended else LIVE_SPANS)
            if not shift
            else shift < 32 and U32 <= count <= counted + s.HIST_BUCKETS << shift
        )
    )


def _labels(
    d: Blocks,
    raw_labels: list[tuple[int, ...]],
    paths: list[m.Path],
    nodes: list[m.Node | None],
    open_spans: list[m.OpenSpan],
    redo: dict[int, int],
    lifetime: Lifetime,
) -> tuple[m.Label, ...]:
    opened: dict[int, int] = {}  # of each label, the first of its open spans
    for span in open_spans:
        label = paths[span.path].label
        opened[label] = min(opened.get(label, span.start_ns), span.start_ns)
    totals: dict[int, int] = defaultdict(int)
    for node in nodes:
        if node is not None:
            totals[paths[node.path].label] += node.total_ns
    labels = []
    bad = 0
    for i, raw in enumerate(raw_labels):
        alone = raw[s.L_FLAGS] & _ALONE
        union = totals[i] if alone else redo.get(i, raw[s.L_UNION_NS])
        since = 0 if i not in opened else opened[i] if alone else raw[s.L_UNION_START]
        if union > lifetime.most_ns or (since and not lifetime.holds(since)):
            bad += 1
            union, since = min(totals[i], lifetime.end_ns - lifetime.start_ns), opened.get(i, 0)
        name = d.name(raw[s.L_OFFSET], raw[s.L_BYTES])
        labels.append(
            m.Label(
                name=name,
                kind=_kind(raw[s.L_KIND], name),
                union_ns=union,
                union_start_ns=min(since, lifetime.end_ns),
                site=d.name(raw[s.L_SITE], raw[s.L_SITE_BYTES]) if raw[s.L_SITE] else "",
                held_across_yield=d.name(raw[s.L_SITE], raw[s.L_SITE_BYTES])
                if raw[s.L_FLAGS] & s.FLAG_HELD_ACROSS_YIELD
                else "",
                phase=(raw[s.L_FLAGS] >> s.FLAG_PHASE_SHIFT) & s.FLAG_PHASE_MASK,
                after=(raw[s.L_FLAGS] >> s.FLAG_AFTER_SHIFT) & s.FLAG_PHASE_MASK,
                owns=bool(raw[s.L_FLAGS] & s.FLAG_OWNS),
            )
        )
    if bad:
        d.problems.append(f"{bad} labels hold an impossible union; their total time stands for it")
    return _cut_names(d, labels, paths)


def _kind(written: int, name: str) -> int:
    """The kind of a label. A collection of garbage is written as a wait, but the thread is at work in it."""
    if written == m.WAIT and name == m.GC_PAUSE:
        return m.GARBAGE
    return written if written <= m.INFERRED else m.USER


def _cut_names(d: Blocks, labels: list[m.Label], paths: list[m.Path]) -> tuple[m.Label, ...]:
    """Views write a path as the names of all that is above it. Where that is far more than a file holds, long names are cut."""
    lengths: list[int] = []
    depths: list[int] = []
    for path in paths:
        lengths.append(len(labels[path.label].name) + (lengths[path.parent] if lengths else 0))
        depths.append(1 + (depths[path.parent] if depths else 0))
    most = max(_NAME_CHARS, _PATH_CHARS // sum(depths))
    if sum(lengths) <= _PATH_CHARS or all(len(label.name) <= most for label in labels):
        return tuple(labels)
    d.problems.append(f"names longer than {most} characters are cut")
    return tuple(replace(label, name=label.name[:most] + "…") if len(label.name) > most else label for label in labels)


def _depth(track: tuple[int, ...]) -> int:
    state = track[s.T_STATE]
    return ((state & s.STATE_DEPTH_MASK) >> 1) - (state & 1)


def _open_spans(
    d: Blocks, tracks: list[tuple[int, ...]], nodes: list[m.Node | None], paths: int, lifetime: Lifetime
) -> list[m.OpenSpan]:
    found: list[tuple[int, int, int]] = []  # track, path or -1, start
    for number, track in enumerate(tracks):
        for i in range(min(max(0, _depth(track)), s.TRACK_FRAMES)):
            node_id, start = track[s.T_FRAMES + 2 * i : s.T_FRAMES + 2 * i + 2]
            node = nodes[node_id] if node_id < len(nodes) else None
            found.append((number, node.path if node is not None else -1, start))
    for i in range(s.SUSPENDED_SLOTS):
        path, start = d.head[s.H_SUSPENDED + 2 * i : s.H_SUSPENDED + 2 * i + 2]
        if path:
            found.append((-1, path - 1 if path <= paths else -1, start))
    spans = [m.OpenSpan(n, path, min(at, lifetime.end_ns)) for n, path, at in found if path >= 0 and lifetime.holds(at)]
    d.left_out(len(found) - len(spans), "open spans refer to what is not there and are left out")
    return spans


def _life(track: tuple[int, ...]) -> tuple[int, int]:
    """When the thread that has the track now began, and the self time before that."""
    which = s.T_LIVES + 2 * (track[s.T_LIFE] & 1)
    return track[which], track[which + 1]


def _spent(lifetime: Lifetime, track: tuple[int, ...], self_ns: int) -> int:
    """Up to when the track is accounted for."""
    birth, before = _life(track)
    known = lifetime.start_ns <= birth <= lifetime.end_ns and before <= self_ns
    return max(lifetime.start_ns + self_ns, birth + self_ns - before if known else 0)


def _self_by_track(nodes: list[m.Node | None]) -> dict[int, int]:
    sums: dict[int, int] = defaultdict(int)
    for node in nodes:
        if node is not None:
            sums[node.track] += node.self_ns
    return sums


def _last_seen(lifetime: Lifetime, tracks: list[tuple[int, ...]], nodes: list[m.Node | None], d: Blocks) -> int:
    """The latest instant anything in the shard speaks of."""
    sums = _self_by_track(nodes)
    seen = [d.head[s.H_ITER_START_NS], d.head[s.H_LAST_WORK_NS], d.head[s.H_SEEN_NS]]
    seen += [_spent(lifetime, track, sums[i]) for i, track in enumerate(tracks)]
    return max([lifetime.start_ns, *(at for at in seen if at <= MAX_NS)])


def _tracks(d: Blocks, raw: list[tuple[int, ...]], nodes: list[m.Node | None], lifetime: Lifetime) -> tuple[m.Track, ...]:
    """The tracks. In a process that did not end by itself, a live one is accounted for to the end: its innermost span."""
    sums = _self_by_track(nodes)
    entered = sum(track[s.T_STATE] >> s.STATE_ENTERED_SHIFT for track in raw)
    out = []
    bad = 0
    for number, track in enumerate(raw):
        alive = track[s.T_ALIVE] == 1
        until, depth = _spent(lifetime, track, sums[number]), max(0, _depth(track))
        bad += not lifetime.holds(_life(track)[0]) or depth > entered
        if alive and not lifetime.ended and until < lifetime.end_ns:
            top = track[s.T_FRAMES + 2 * (depth - 1)] if 0 < depth <= s.TRACK_FRAMES else track[s.T_BASE]
            node = nodes[top] if top < len(nodes) else None
            if node is not None and node.track == number:
                nodes[top] = replace(node, self_ns=node.self_ns + lifetime.end_ns - until)
                sums[number] += lifetime.end_ns - until
                until = lifetime.end_ns
        out.append(
            m.Track(
                id=number, name=d.name(track[s.T_NAME], track[s.T_NAME_BYTES]), tid=track[s.T_TID],
                alive=alive and not lifetime.ended, threads=track[s.T_OCCUPANTS], lifetime_ns=sums[number],
                end_ns=min(until, lifetime.end_ns), entered=track[s.T_STATE] >> s.STATE_ENTERED_SHIFT,
                depth=depth if depth <= entered else 0,
            )
        )  # fmt: skip
    d.left_out(bad, "tracks began outside the recording or hold more open spans than were begun")
    return tuple(out)
