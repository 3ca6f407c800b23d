"""The GPU has nothing to do while the host steps environments or reads data.

Collecting and learning take turns: while environments are stepped the device waits, while it learns they do.

Recognised by: events around the calls of a phase: the time in which a span that queues no work was open and the device had
reached everything queued before. Only in sessions with device data, and only what is certain.

What to do: more environments per step (a vector environment), environments in worker processes while the device learns,
environments on the device; for small networks, the CPU may be faster altogether."""

from __future__ import annotations

from ....model.finding import Gain
from ..evidence import Evidence
from ..rule import Candidate, percent, predict

ACTION = "step more environments at once, or in workers while the GPU learns; for a small network try the CPU"
LEAST_SHARE = 0.4


def find(e: Evidence) -> Candidate | None:
    devices = e.diagnosis.devices
    if devices is None or not devices.idle_in or devices.idle_least < LEAST_SHARE:
        return None
    name, part = devices.idle_in[0]
    work = e.where_label(name)
    return Candidate(
        f"the GPU is idle at least {percent(devices.idle_least)} of the time, most of it while the host is in {name}",
        e.blame(work, share=0.6),
        name,
        share=devices.idle_least,
        gain=_gain(devices.idle_least),
        evidence=(
            f"idle in {name}: {percent(part)} of the time",
            f"it is certainly busy {percent(devices.busy_least)} of the time; {percent(devices.measured_share)} was measured",
        ),
    )


def _gain(idle: float) -> Gain:
    """Side by side, the longer of the two remains."""
    return predict(min(idle, 1.0 - idle), 0.8)
