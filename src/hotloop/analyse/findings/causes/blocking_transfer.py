"""Large copies between host and GPU that the host waits for.

What to do: keep the replay buffer or the rollout on the GPU. If it does not fit, copy whole batches from pinned memory:

    batch = storage[index].to("cuda")                            # before
    stage = torch.empty(batch_size, obs_size, pin_memory=True)   # after: made once, before the loop
    batch = torch.index_select(storage, 0, index, out=stage).to("cuda", non_blocking=True)

Such a copy may still be running when the call returns. Wait for it (`torch.cuda.Event`, `torch.cuda.synchronize()`) before you
fill `stage` again, and before you read what was copied back, or the numbers may be wrong. `pin_memory()` on every batch is a
copy too, and may gain nothing.

From ordinary memory a copy runs at half the speed, and neither host nor GPU does anything else meanwhile. Recognised by: the
time the host waited in copies of more than 16 KB, line by line. Only on CUDA."""

from __future__ import annotations

from ....model.shard import Place
from ..evidence import Evidence
from ..rule import Candidate, percent
from .sync_in_loop import MOST_BYTES as SMALL_BYTES
from .sync_in_loop import said, slices_at

TURN = 150
ACTION = "keep the data on the GPU, or copy whole batches to it from pinned memory with non_blocking=True"
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
        Place(top.file, top.function, top.line),
        "learn" if e.updates else "collect",
        tuple(slices_at(e, lines)),
        share=share,
        removes=0.7,
        evidence=(
            f"{size / (1 << 20):,.0f} MB were copied; {percent(pinned)} of the copies used pinned memory",
            *(said(t) for t in lines[:2]),
        ),
    )
