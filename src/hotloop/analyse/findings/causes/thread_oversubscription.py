"""Too many torch threads for the cores, or for small tensors.

What to do: `torch.set_num_threads(1)` in every process (or OMP_NUM_THREADS=1 in the environment), and measure again. Large
networks on the CPU gain from threads: for these try the cores divided by the processes.

Threads that share a small operation wait for each other longer than they work; and each of several processes may start a thread
per core. Recognised by: more threads than cores; or several where network calls take under 2 ms and over 1.4 cores work."""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, percent, predict

TURN = 240
ACTION = "call torch.set_num_threads(1) in every process (or set OMP_NUM_THREADS=1), and measure again"


def find(e: Evidence) -> Candidate | None:
    readings = e.facts.get("update_looks", 0)
    threads = e.facts.get("torch_threads", 0) / readings if readings else 0
    cores = e.host_cores
    used = e.diagnosis.resources.get("cpu_mean", 0.0) / 100  # cores
    tensor = e.where_label("forward", "policy", "backward", "optimizer", "clip_grad", "loss", "zero_grad")
    share = e.share(tensor)
    too_many = threads > cores
    if threads < 2 or share < 0.2 or not (too_many or (used > 1.4 and _small(e))):
        return None
    lost = share * (0.75 if too_many else 0.35)
    where = e.blame(tensor)
    return Candidate(
        f"torch uses {threads:.0f} threads on {cores} cores, too many here; tensor work is {percent(share)} of the loop",
        where,
        "learn",
        tuple(tensor),
        share=lost,
        gain=predict(lost, 1.0, 0.15),
        evidence=(f"{threads:.0f} torch threads, {cores} cores", f"{used:.1f} cores were busy on average"),
    )


def _small(e: Evidence) -> bool:
    calls = [o for o in e.diagnosis.operations if o.name in ("learn/forward", "collect/policy")]
    return bool(calls) and all(o.mean_ns < 2e6 for o in calls)
