"""The environment alone, turbo on and off: no policy, no tensors, random decisions.

    python scripts/profile_turbo_mode.py
    python scripts/profile_turbo_mode.py --steps 1000 --shops 32 --repetitions 4

Both arms take the same decisions; the script checks that they saw the same observations, masks and rewards, bit for bit.
Sessions are recorded one after the other in this process, in ABBA order, after one of each that does not count.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from arms import interleave
from comparison import Measured, add_up, breakdown_text, comparison_text, owners_text, read_session
from shop import Size, make_shops

from hotloop import count, profile, start, step, stop

WORD = {False: "off", True: "on"}


def record(turbo: bool, steps: int, shops: int, size: Size, seed: int, out: Path | None) -> tuple[Path | None, str]:
    """A session of `steps` steps of all shops (without `out`: not recorded), and a digest of everything an agent would see."""
    world, source, digest = make_shops(turbo, shops, size, seed), np.random.default_rng(seed), hashlib.sha256()
    path = start(name=f"petri_env_turbo_{WORD[turbo]}", out=out) if out else None
    for _ in range(steps):
        with profile("choose_action"):
            for array in (world.observation, world.mask, world.reward, world.done):
                digest.update(array)
            rows = (source.random(world.mask.shape) * world.mask).argmax(1).tolist()
        with profile("env_step"):
            world.step(rows)
        done = world.done.nonzero()[0].tolist()
        if done:
            with profile("env_reset"):
                world.reset(done)
        count("env_steps", shops)
        count("episodes", len(done))
        count("resets", len(done))
        step()
    stop()
    return path, digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, text in (
        ("steps", 500, "steps of all shops per session"), ("shops", 16, "environments stepped together"),
        ("jobs", 6, "jobs per shop"), ("machines", 6, "machines per shop"), ("seed", 1, "of the orders and the decisions"),
        ("repetitions", 2, "pairs of sessions"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, metavar="INT", help=f"{text} (default: {default})")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the sessions (default: here)")
    a = parser.parse_args()
    if min(a.steps, a.shops, a.jobs, a.machines, a.repetitions) < 1:
        parser.error("steps, shops, jobs, machines and repetitions are at least 1")
    size = Size(a.jobs, a.machines)
    digests = {record(turbo, min(a.steps, 50), a.shops, size, a.seed, None)[1] for turbo in (False, True)}
    arms: dict[bool, list[Measured]] = {False: [], True: []}
    full = set()
    for turbo in interleave(a.repetitions):
        path, digest = record(turbo, a.steps, a.shops, size, a.seed, a.out / "runs")
        full.add(digest)
        arms[turbo].append(read_session(path))
    if len(digests) > 1 or len(full) > 1:
        sys.exit("turbo on and off did not give the same trajectories: the comparison means nothing")
    for turbo, sessions in arms.items():
        arm = add_up(sessions)
        simulated = arm.total("env_step") + arm.total("env_reset")
        per_second = arm.env_steps / arm.sessions / simulated
        head = f"Turbo {WORD[turbo].upper()}: {a.steps} steps of {a.shops} shops"
        print(f"\n{head}, {per_second:,.0f} decisions a second of simulation")
        print(breakdown_text(arm, breakdown=True))
        print(owners_text(arm))
    print("\n" + comparison_text(arms[False], arms[True], breakdown=True))
    print(f"\nTrajectories: identical in {2 * a.repetitions} sessions ({full.pop()[:12]})")
    print(f"next: hotloop report {path}")


if __name__ == "__main__":
    main()
