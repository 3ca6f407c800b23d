"""Large copies between host and GPU that the host waits for.

Batches go to the device, or results come back, from ordinary memory and with a wait: the copy engine gets half its speed, and
neither host nor device does anything else meanwhile.

Recognised by: copies of more than 16 KB by line, with the time the host spent in them, whether the memory was pinned and
whether the call waited. Only in sessions with device data.

What to do: keep the replay buffer or the rollout on the device; else pinned memory (`pin_memory()`) and `non_blocking=True`,
one copy per batch."""

from __future__ import annotations

from ..evidence import Evidence, Where
from ..rule import Candidate, percent
from .sync_in_loop import MOST_BYTES as SMALL_BYTES
from .sync_in_loop import said, slices_at

ACTION = "keep the data on the GPU, or copy whole batches from pinned memory with non_blocking=True"
LEAST_SHARE = 0.06


def find(e: Evidence) -> Candidate | None:
    devices = e.diagnosis.devices
    if devices is None:
        return None
    lines = [t for t in devices.transfers if t.blocking and t.bytes > SMALL_BYTES * t.count]
    share = min(1.0, sum(t.ns for t in lines) / e.loop_ns)
    if share < LEAST_SHARE:
        return None
    top, size = lines[0], sum(t.bytes for t in lines)
    pinned = sum(t.pinned for t in lines) / sum(t.count for t in lines)
    return Candidate(
        f"{percent(share)} of the loop goes into copies between host and GPU; most at {top.call} in {top.function}",
        Where(top.file, top.line, top.function, top.ns),
        "learn" if e.updates else "collect",
        tuple(slices_at(e, lines)),
        share=share,
        removes=0.7,
        evidence=(
            f"{size / (1 << 20):,.0f} MB, {percent(pinned)} of the copies with pinned memory",
            *(said(t) for t in lines[:2]),
        ),
    )
