"""The host waits for the GPU for a number, again and again.

What to do: keep losses and flags on the GPU and read them once per iteration, log every Nth step, replace `if tensor:` by
`torch.where`. Actions must come back at every env step: copy those of all environments in one call.

    total += loss.item()     # before: waits at every update
    total += loss.detach()   # after: with total.item() once per iteration

`.item()`, `float(tensor)`, `if tensor:`, `.cpu()` of a few numbers, `torch.cuda.synchronize()`: the host stops until
everything queued so far is done, and queues nothing meanwhile. The GPU's work is not lost, but nothing overlaps with it any
more.

Recognised by: counting such calls on tensors on a GPU, with the time the host spent in them, by line. Only on CUDA."""

from __future__ import annotations

from ....model.device import Transfer
from ....model.shard import Place
from ..evidence import Evidence, Slice
from ..rule import Candidate, percent

TURN = 160
ACTION = "keep results on the GPU and read them once per iteration, not at every update or step"
LEAST_SHARE, LEAST_CALLS = 0.06, 50
MOST_BYTES = 16384  # a call that copies more than this is a transfer


def find(e: Evidence) -> Candidate | None:
    devices = e.diagnosis.devices
    if devices is None:
        return None
    lines = [t for t in devices.transfers if t.blocking and t.bytes <= MOST_BYTES * t.count]
    calls, ns = sum(t.blocking for t in lines), sum(t.ns for t in lines)
    share = min(1.0, ns / e.loop_ns)
    if share < LEAST_SHARE or calls < LEAST_CALLS:
        return None
    top = lines[0]
    return Candidate(
        f"the host waits for the GPU {calls:,} times, {percent(share)} of the loop; most at {top.call} in {top.function}",
        Place(top.file, top.function, top.line),
        "learn" if e.updates else "collect",
        tuple(slices_at(e, lines)),
        share=min(share, max(0.0, 1.0 - devices.busy_least)),  # the device has its work to do all the same
        removes=0.7,
        evidence=tuple(said(t) for t in lines[:3]),
    )


def slices_at(e: Evidence, lines: list[Transfer]) -> list[Slice]:
    """What was sampled at these lines."""
    wanted = {(t.file, t.line) for t in lines}
    return e.where(lambda piece: any((place.file, place.line) in wanted for place in piece.places))


def said(t: Transfer) -> str:
    each = t.ns / max(1, t.count) / 1000
    return f"{t.count:,} × {t.call} ({t.direction}) at line {t.line} of {t.function}, {each:.0f} µs each"
