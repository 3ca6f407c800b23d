"""Seed 004's puzzle with a planted cause: is it ranked first, and is the split exact?

Simulated runs have the counts and times of the rebuilt Snake DQN; real ones are sessions of it, the cause planted by a flag.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.measure import Table

from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.gap import CALLS, COST, STEPS, Cause, Gap, Side, explain_gap, read_side
from hotloop.store.reader import read_session

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "snake_dqn" / "scripts" / "training" / "train_dqn_mlp.py"
# Milliseconds and calls per vector step of 32 games, from the example's README.
PROFILE = {
    "select": (0.19, 1), "move": (0.40, 1), "features": (0.10, 1), "push": (0.38, 1), "sample": (0.79, 8), "loss": (2.88, 8),
    "backward": (3.16, 8), "optimizer_step": (3.05, 8), "log": (0.03, 1),
}  # fmt: skip
TRAIN = ("sample", "loss", "backward", "optimizer_step")
ENVS = 32


def is_exact(gap: Gap) -> bool:
    parts = all(sum(p.by_factor.values()) == p.large_ns - p.small_ns for p in gap.parts)
    return parts and sum(gap.by_factor.values()) == gap.large.total_ns - gap.small.total_ns


def make_side(
    rng: np.random.Generator, episodes: int, per_episode: float, calls: dict[str, float], cost: dict[str, float]
) -> Side:
    vector_steps = max(1, round(episodes * per_episode / ENVS))
    components, counts = {"(untracked)": int(3e9 * np.exp(rng.normal(0, 0.05)))}, {}
    for name, (ms, each) in PROFILE.items():
        counts[name] = max(1, round(each * vector_steps * calls.get(name, 1.0)))
        per_call = ms * 1e6 / each * cost.get(name, 1.0) * np.exp(rng.normal(0, 0.05))
        components[name] = int(counts[name] * per_call)
    return Side("simulated", sum(components.values()), components, counts, episodes, vector_steps * ENVS, "env_steps")


def simulate(table: Table, count: int) -> None:
    """A cause that makes the long run 1.5 to 14 times slower than expected."""
    rng = np.random.default_rng(6)
    first = exact = 0
    whole = sum(ms for ms, _ in PROFILE.values())
    for _ in range(count):
        times = float(np.exp(rng.uniform(np.log(1.5), np.log(14))))
        kind = rng.choice([STEPS, CALLS, COST])
        names = TRAIN if kind == CALLS else (str(rng.choice(list(PROFILE))),)
        share = sum(PROFILE[n][0] for n in names) / whole
        factor = times if kind == STEPS else 1 + (times - 1) / share
        plant = dict.fromkeys(names, factor)
        small = make_side(rng, 1024, 40.0, {}, {})
        large = make_side(
            rng, 5000, 40.0 * (factor if kind == STEPS else 1), plant if kind == CALLS else {}, plant if kind == COST else {}
        )
        gap = explain_gap(small, large)
        top = gap.causes[0]
        first += top.factor == kind and (kind == STEPS or set(top.components) == set(names))
        exact += is_exact(gap)
    table.add("seed 004 replay, simulated: planted cause first", first / count, 0.95, "", above=True, note=f"({count} replays)")
    table.add("seed 004 replay, simulated: split exact", exact / count, 1.0, "", above=True)


# Few games for what the loop itself does, many for what is done per game; the long run has five times the episodes.
FEW, MANY = ("--envs", "16", "--board", "10"), ("--envs", "256", "--board", "10")
EPISODES = {FEW: (150, 750), MANY: (700, 3500)}
PLANTS = {
    "longer episodes": (FEW, ["--board", "30"], STEPS, set()),
    "16 training steps": (FEW, ["--train-steps", "16"], CALLS, set(TRAIN)),
    "flood fill": (FEW, ["--flood-fill", "every"], CALLS, {"flood_fill"}),
    "a push per game": (MANY, ["--push", "loop"], COST, {"push"}),
    "heavy logging": (MANY, ["--log", "heavy"], COST, {"log"}),
}


def record(folder: Path, episodes: int, seed: int, more: Sequence[str]) -> Side:
    """One session of the example; random moves, so that only what is planted makes episodes longer."""
    base = ["--push", "batch", "--train-steps", "1", "--epsilon-end", "1.0", "--device", "cpu", "--seed", str(seed)]
    words = [sys.executable, str(SCRIPT), "--episodes", str(episodes), *base, *more, "--out", str(folder)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (session,) = folder.iterdir()
    return read_side(diagnose(read_session(session)))


def matches(cause: Cause, factor: str, names: set[str]) -> bool:
    return cause.factor == factor and (not names or bool(names & set(cause.components)))


def replay(table: Table, seeds: int) -> None:
    """Real sessions: a short run, and a long one with the cause in it."""
    first = exact = total = 0
    told = []
    with tempfile.TemporaryDirectory(prefix="hotloop-") as scratch:
        for seed in range(1, seeds + 1):
            short = {
                games: record(Path(scratch) / f"{seed}-{games[1]}", EPISODES[games][0], seed, games) for games in (FEW, MANY)
            }
            for i, (name, (games, more, factor, names)) in enumerate(PLANTS.items()):
                large = record(Path(scratch) / f"{seed}-{i}-large", EPISODES[games][1], seed, [*games, *more])
                gap = explain_gap(short[games], large)
                ok = matches(gap.causes[0], factor, names)
                first, exact, total = first + ok, exact + is_exact(gap), total + 1
                print(f"\r  replay {total}: {first} first", end="", file=sys.stderr, flush=True)
                told += [] if ok else [f"{name}: {json.dumps([(c.factor, c.components[:2]) for c in gap.causes[:2]])}"]
    print(file=sys.stderr)
    note = f"({total} replays, {len(PLANTS)} causes) {'; '.join(told)}"
    table.add("seed 004 replay, real Snake DQN: planted cause first", first / total, 0.95, "", above=True, note=note)
    table.add("seed 004 replay, real Snake DQN: split exact", exact / total, 1.0, "", above=True)
