"""The GPU has nothing to do while the host steps environments or reads data.

What to do: if another finding names slow environment code, fix that first. Then step more environments per call
(`gym.make_vec(name, num_envs=64)`), step them in worker processes while the GPU learns (with a slightly older policy, which
on-policy methods must allow for), or run them on the GPU. For a small network try `device="cpu"`: it may be faster altogether.

Collecting and learning take turns: while environments are stepped the GPU waits, while it learns they do.

Recognised by: CUDA events around calls that give the GPU no work, such as an env step: the time left in them after the GPU had
done all it was given before. It was idle at least that long. Only on CUDA."""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, percent, predict

TURN = 300
ACTION = "step more environments at once, or in workers while the GPU learns; for a small network try the CPU"
LEAST_SHARE = 0.4


def find(e: Evidence) -> Candidate | None:
    devices = e.diagnosis.devices
    if devices is None or not devices.idle_in or devices.idle_least < LEAST_SHARE:
        return None
    (name, part), *_ = devices.idle_in
    idle = devices.idle_least
    return Candidate(
        f"the GPU is idle at least {percent(idle)} of the time, most of it while the host is in {name}",
        e.blame(e.where_label(name), share=0.6),
        name,
        share=idle,
        gain=predict(min(idle, 1.0 - idle), 0.8),  # side by side, the longer of the two remains
        evidence=(
            f"it was idle in {name} for {percent(part)} of the time",
            f"it was certainly busy {percent(devices.busy_least)} of the time; {percent(devices.measured_share)} was measured",
        ),
    )
