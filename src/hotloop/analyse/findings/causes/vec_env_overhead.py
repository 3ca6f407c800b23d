"""Worker processes cost more than the stepping they do.

What to do: step the environments in one process, or give each worker many of them. Keep the workers if the environment cannot
exist twice in one process.

    envs = gym.make_vec(name, num_envs=8, vectorization_mode="async")   # before; stable-baselines3: SubprocVecEnv
    envs = gym.make_vec(name, num_envs=8, vectorization_mode="sync")    # after; stable-baselines3: DummyVecEnv

A step is so cheap that sending actions and observations through pipes, and waking processes, costs more than stepping all
environments in one process. Recognised by: the time the main process spends in the vector environment against the time all
workers together spend stepping."""

from __future__ import annotations

from ....model.shard import Place
from ..evidence import ENV_METHODS, Evidence, Slice
from ..others import find_culprit, is_env
from ..rule import Candidate, Expected, percent, speedup

TURN = 40
ACTION = "step the environments in one process (DummyVecEnv, SyncVectorEnv), or give each worker many of them"
LEAST_LOST = 0.10
_EXCHANGES = ("connection.py", "queues.py", "reduction.py", "pickle.py")  # multiprocessing's


def find(e: Evidence) -> Candidate | None:
    workers = [lane for lane in e.env_lanes if lane.shard]
    processes = len(e.session.shards) - 1
    steps = e.where_label("env_step", "env_reset") or _exchange(e)
    if not workers or processes < 2 or not steps:
        return None
    share = e.share(steps)
    # the same steps in one process: what the workers took together; they ran side by side on shared cores, which slows them
    cores = max(1, int(e.diagnosis.resources.get("cores", 0) or e.host_cores))
    crowded = max(1.0, (processes + 1) / cores)
    inside = sum(lane.ns for lane in workers) / e.loop_ns / min(crowded, 1.5)
    inside += _other_work(e)
    lost = share - inside
    if lost < LEAST_LOST or inside > 0.6 * share:
        return None
    where = _maker(e, steps)
    return Candidate(
        f"{percent(share)} of the loop goes into stepping with {processes} worker processes; "
        f"the same steps in one process would take about {percent(inside)}",
        where,
        "collect/env_step",
        tuple(steps),
        share=lost,
        gain=Expected(speedup(lost * 0.9)),
        evidence=(
            f"a step costs {sum(lane.ns for lane in workers) / sum(lane.steps for lane in workers) / 1000:,.0f} µs in a worker",
            f"{processes} worker processes on {cores} cores",
        ),
    )


def _other_work(e: Evidence) -> float:
    """Of the loop, what it waits for while a worker does what is neither a step nor an exchange: it would be done in one
    process too."""
    culprit = find_culprit(e)
    if culprit is None:
        return 0.0
    found = 0.0
    for place in culprit.places:
        other = [x for x in place.stacks if not is_env(e, x) and not any(p.file.endswith(_EXCHANGES) for p in x.places)]
        found += place.share * sum(x.count for x in other) / sum(x.count for x in place.stacks)
    return e.share(culprit.waits) * found


def _exchange(e: Evidence) -> list[Slice]:
    """A vector environment of the script's own: what the main process waits for at its pipes, and what it sends."""
    return e.where(lambda x: any("connection.py" in p.file for p in x.places) or x.label == "(waiting: pipe)")


def _maker(e: Evidence, steps: list[Slice]) -> Place:
    """Where the script steps them; in a library that collects, what steps them there."""
    where = e.blame(steps, through=True)
    return where if e.is_script(where) else e.blame(steps, ENV_METHODS)
