"""Where PPO's training time goes, with the turbo environment on and off.

    python scripts/profile_training_time.py --compare --batches 5
    python scripts/profile_training_time.py --compare --batches 5 --breakdown
    python scripts/profile_training_time.py --turbo --batches 10
    python scripts/profile_training_time.py --no-turbo --batches 10
    python scripts/profile_training_time.py --compare --batches 10 --detailed

Each session runs in a fresh process; a comparison runs them in ABBA order. --turbo and --no-turbo together, or neither, mean
--compare. Timing is the host's clock.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from arms import fresh_processes, interleave, record_arm, write_functions
from comparison import Measured, add_up, breakdown_text, comparison_text, judge, owners_text, read_session, recommendations
from settings import Settings, add_flags

WORD = {False: "OFF", True: "ON"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", action="store_true", help="both arms, and how they differ")
    parser.add_argument("--turbo", action="store_true", help="the turbo environment")
    parser.add_argument("--no-turbo", action="store_true", help="the plain environment")
    parser.add_argument("--breakdown", action="store_true", help="show what data collection consists of")
    parser.add_argument("--detailed", action="store_true", help="also write profile_training_turbo_{off,on}.txt, by function")
    parser.add_argument("--repetitions", type=int, default=5, metavar="INT", help="pairs of sessions to compare (default: 5)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the sessions and files (default: here)")
    add_flags(parser, leave_out=("turbo",), batches=5)
    given = vars(parser.parse_args())
    compare, turbo, plain, breakdown, detailed, pairs, out = (
        given.pop(name) for name in ("compare", "turbo", "no_turbo", "breakdown", "detailed", "repetitions", "out")
    )
    if pairs < 1:
        parser.error("--repetitions is at least 1")
    try:
        settings = Settings(**given)
    except ValueError as error:
        parser.error(str(error))
    compare = compare or turbo == plain
    order = interleave(pairs) if compare else [turbo]
    out.mkdir(parents=True, exist_ok=True)

    arms: dict[bool, list[Measured]] = {False: [], True: []}
    paths: dict[bool, list[Path]] = {False: [], True: []}
    with fresh_processes() as run:
        for i, on in enumerate(order, 1):
            path = run(record_arm, replace(settings, turbo=on), out / "runs")
            arms[on].append(read_session(path))
            paths[on].append(path)
            print(f"session {i}/{len(order)}: turbo {WORD[on]:<3} {arms[on][-1].wall_s:6.2f}s  {path}", flush=True)
        files = {}
        if detailed:
            for on in sorted(set(order)):
                files[on] = out / f"profile_training_turbo_{WORD[on].lower()}.txt"
                run(write_functions, replace(settings, turbo=on), files[on])
    for on, sessions in arms.items():
        if sessions:
            arm = add_up(sessions)
            decisions = arm.env_steps // arm.sessions
            print(f"\nTurbo {WORD[on]}: {settings.batches} batches, {decisions:,} decisions, after an uncounted warm-up batch")
            print(breakdown_text(arm, breakdown))
            print(owners_text(arm))
    if compare:
        judged = judge(paths[False], paths[True])
        print("\n" + comparison_text(arms[False], arms[True], breakdown, judged))
        print("\n" + recommendations(arms[False], arms[True], judged))
    print("\nHost timing: a GPU's work shows where the host waits for it; hotloop run has the device's own times.")
    for file in files.values():
        print(f"wrote {file} (50 functions by cumulative time, callers and callees)")
    print(f"next: hotloop report {path}")


if __name__ == "__main__":
    main()
