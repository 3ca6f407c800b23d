"""Time in which at least one span of a label is open, across processes.

What lives here: exact unions from events. Within one process the recorder keeps the union itself; across processes it is
exact only while every event of the label was kept. Otherwise the ledger's interval stands.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..model.ledger import Operation
from ..model.session import SEGMENT, SessionData


def union_ns(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Length of the union of intervals.

    >>> union_ns(np.array([0, 5, 20]), np.array([10, 12, 21]))
    13
    """
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    # What each interval adds beyond everything before it.
    before = np.concatenate(([start[0]], reach[:-1]))
    return int(np.sum(np.maximum(0, end - np.maximum(start, before))))


def exact_across_processes(session: SessionData, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The operations, with their union made exact where all events of the label were kept."""
    shared = {(o.name, o.kind) for o in operations if o.union_high_ns > o.union_ns}
    if not shared:
        return operations
    numbers: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    calls: dict[tuple[str, int], int] = defaultdict(int)
    for index, shard in enumerate(session.shards):
        for path in range(len(shard.paths)):
            label = shard.label_of(path)
            if (label.name, label.kind) in shared:
                numbers[label.name, label.kind][index].append(path)
        for node in shard.nodes:
            label = shard.label_of(node.path)
            calls[label.name, label.kind] += node.count
    events = session.events
    out = []
    for operation in operations:
        key = (operation.name, operation.kind)
        if key not in shared:
            out.append(operation)
            continue
        chosen = np.zeros(len(events), bool)
        for index, paths in numbers[key].items():
            chosen |= (events.shard == index) & np.isin(events.path, paths)
        if np.any(events.flags[chosen] & SEGMENT) or int(np.count_nonzero(chosen)) != calls[key]:
            out.append(operation)
            continue
        start, end = events.start_ns[chosen], events.start_ns[chosen] + events.dur_ns[chosen]
        open_spans = [
            (span.start_ns, shard.end_ns)
            for shard in session.shards
            for span in shard.open_spans
            if (shard.label_of(span.path).name, shard.label_of(span.path).kind) == key
        ]
        if open_spans:
            more = np.array(open_spans, np.int64)
            start, end = np.concatenate((start, more[:, 0])), np.concatenate((end, more[:, 1]))
        exact = min(round(union_ns(start, end) * operation.scale), operation.busy_ns)
        out.append(replace(operation, union_ns=exact, union_high_ns=exact))
    return tuple(out)
