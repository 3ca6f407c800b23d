"""Too many torch threads for the cores, or for small tensors.

What to do: `torch.set_num_threads(1)` in every process (or OMP_NUM_THREADS=1 in the environment), and measure again. Large
networks on the CPU gain from threads: for these try the cores divided by the processes.

Threads that share a small operation wait for each other longer than they work; and each of several processes may start a
thread per core. Recognised by: more threads than cores, of one process or of all that call networks together; or several
where network calls take under 2 ms and over 1.4 cores work. Predicted from your own network with one thread, measured after
the run; without that, a third to three quarters of its time."""

from __future__ import annotations

from ....model.shard import WAIT
from ..evidence import Evidence
from ..rule import Candidate, percent, predict

TURN = 35
LEAST_LOST = 0.05
ACTION = "call torch.set_num_threads(1) in every process (or set OMP_NUM_THREADS=1), and measure again"


def find(e: Evidence) -> Candidate | None:
    readings = e.facts.get("update_looks", 0)
    threads = e.facts.get("torch_threads", 0) / readings if readings else 0
    cores = e.host_cores
    actors = _actors(e)
    if actors:
        return actors
    used = e.diagnosis.resources.get("cpu_mean", 0.0) / 100  # cores
    tensor = e.where_label("forward", "policy", "backward", "optimizer", "clip_grad", "loss", "zero_grad")
    share = e.share(tensor)
    too_many = threads > cores
    if threads < 2 or share < 0.2 or not (too_many or (used > 1.4 and _small(e))):
        return None
    lost = share * (0.75 if too_many else 0.35)
    ratios = [c.variants["threads=1"] / c.cost(c.rows) for c in e.session.probes.curves if "threads=1" in c.variants]
    if ratios and not too_many:
        lost = share * max(0.0, 1 - max(ratios))
        if lost < LEAST_LOST:
            return None
    where = e.blame(tensor)
    return Candidate(
        f"torch uses {threads:.0f} threads on {cores} cores, too many here; tensor work is {percent(share)} of the loop",
        where,
        "learn",
        tuple(tensor),
        share=lost,
        gain=predict(lost, 1.0),
        evidence=(f"{threads:.0f} torch threads, {cores} cores", f"{used:.1f} cores were busy on average"),
    )


def _actors(e: Evidence) -> Candidate | None:
    """Workers that call networks with a thread per core each, while the loop waits for them."""
    calling = [(s.counters["~threads_seen"] / s.counters["~model_calls"], i) for i, s in enumerate(e.session.shards)
               if i and s.counters.get("~model_calls") and s.counters.get("~threads_seen")]  # fmt: skip
    threads = sum(n for n, _ in calling)
    waits = e.where(lambda x: x.kind == WAIT)
    share = e.share(waits)
    if len(calling) < 2 or threads <= 1.5 * e.host_cores or share < 0.2 or max(n for n, _ in calling) < 2:
        return None
    lanes = [
        x for _, i in calling for b in e.ledger.balances if b.shard == i for x in e.lane(i, b.track) if "policy" in x.label
    ]
    return Candidate(
        f"{len(calling)} workers call networks with {threads / len(calling):.0f} torch threads each, on {e.host_cores} cores; "
        f"the loop waits for them {percent(share)} of the time",
        e.blame(lanes or waits), "collect", tuple(waits), share=share * 0.6, gain=predict(share * 0.6, 1.0),
        evidence=(f"{threads:.0f} threads in all, {e.host_cores} cores",),
    )  # fmt: skip


def _small(e: Evidence) -> bool:
    calls = [o for o in e.diagnosis.operations if o.name in ("learn/forward", "collect/policy")]
    return bool(calls) and all(o.mean_ns < 2e6 for o in calls)
