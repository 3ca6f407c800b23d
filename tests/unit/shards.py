"""Shards made by hand."""

from __future__ import annotations

from dataclasses import replace

from hotloop.model import histogram as h
from hotloop.model import shard as m

EMPTY = (0,) * h.BUCKETS


def node(track: int, path: int, self_ns: int, count: int = 0, total: int = 0) -> m.Node:
    counts = list(EMPTY)
    counts[h.bucket_of(total // max(1, count))] = count
    return m.Node(track, path, count, self_ns, total, total // max(1, count), total, 0.0, tuple(counts))


def shard(labels, paths, nodes, **more) -> m.Shard:
    tracks = sorted({n.track for n in nodes})
    lives = {t: sum(n.self_ns for n in nodes if n.track == t) for t in tracks}
    base = m.Shard(
        id=1, pid=1, parent_pid=0, parent_shard=0, name="", epoch=1, native=True, clock=4, start_ns=0, start_unix_ns=0,
        end_ns=1000, ended=True, process_start=1, paused_ns=0, cost_inside_ps=0, cost_outside_ps=0, cost_error_ps=0,
        peak_method=0, disk_errno=0, first_work_ns=0, last_work_ns=0, iterations_closed=0, ring_events=0, logged_events=0,
        labels=tuple(labels), paths=tuple(paths), nodes=tuple(nodes),
        tracks=tuple(m.Track(t, f"t{t}", t, False, 1, lives[t], 1000, 0, 0) for t in tracks),
        open_spans=(), lifted=0, iterations=(), counters={}, losses={}, snapshots=(),
    )  # fmt: skip
    return replace(base, **more)


ROOT = m.Label("(root)", m.ROOT, 0, 0)
WAIT = m.Label("(waiting: sleep)", m.WAIT, 30, 0)
