"""The five seed systems, closed: what `hotloop run` finds without their hand-written spans, and the documents' fixes by `ab`.

    python benchmarks/seeds [--runs 3] [--pairs 5] [--only 000,004] [--skip-ab] [--out FILE]

Each system runs in turns with its own spans (its own session, no hooks) and spanless under `hotloop run`. Compared are the
shares of the parts of the loop that both know; medians over the runs. Then the fix its document proposes, as two commands
under `hotloop ab`. `--out` keeps everything as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.measure import clean_env

EXAMPLES = Path(__file__).parents[2] / "examples"
SPANLESS = Path(__file__).with_name("spanless.py")
RICOCHET = "ricochet_rgb/train_agent.py --obs-mode rgb_image --convlstm --timesteps 4096"
THINKY = "supervised_to_ppo/tools/run.py cvc.thinky_supervised_to_ppo run=x evaluator.evaluate_local=False"
SNAKE = "snake_dqn/scripts/training/train_dqn_mlp.py --env-steps 15360 --seed 1"


@dataclass(frozen=True)
class System:
    command: str
    profiled: str  # what switches its own spans on
    parts: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]  # name -> (its spans, our phase or labels)
    fix: str
    before: str  # arguments of the two commands
    after: str
    claim: str


SYSTEMS = {
    "000": System(
        RICOCHET, "--enable-profiling",
        {"learn": (("training_model_update",), ("learn",)), "collect": (("training_data_collection",), ("collect",)),
         "backward": (("training_backward",), ("learn/backward",))},
        "keep the walls and the grid once drawn", "", "--cache-static", "env_rgb_* first: 25.3 % of the time, no gain named",
    ),
    "001": System(
        "petri_ppo/train.py --batches 40", "",
        {"learn": (("training_loop", "replay_buffer_ops", "gae_computation"), ("learn",)),
         "collect": (("data_collection",), ("collect",)), "backward": (("backward_pass",), ("learn/backward",))},
        "turbo environment", "--batches 12 --no-turbo", "--batches 12 --turbo", "+1.2 %, one run each",
    ),
    "002": System(
        "battle_threads/train.py --episodes 800", "--profile --profile-name x",
        {"collect": (("env_parallel_execution",), ("collect",)), "learn": (("gradient_calculation",), ("learn",)),
         "backward": (("backward",), ("learn/backward",))},
        "battles in 8 threads instead of 1", "--episodes 400 --threads 1", "--episodes 400 --threads 8",
        "communication with the server first, 10-15 %; no gain named",
    ),
    "003": System(
        f"{THINKY} supervised_steps=60_000 trainer.total_timesteps=120_000", "loss.timing_every=10",
        {"learn": (("train",), ("learn",)), "collect": (("rollout",), ("collect",)),
         "backward": (("backward",), ("learn/backward",))},
        "double the batch", "", "trainer.batch_size=1024", "no gain named; on a CPU its checklist says it pays on a GPU",
    ),
    "004": System(
        SNAKE, "",
        {"learn": (("train",), ("learn",)), "collect": (("push", "step", "select"), ("collect",)),
         "backward": (("backward",), ("learn/backward", "learn/zero_grad"))},
        "push in one batch", "--push loop", "--push batch", "2-3x (also 13.8x, 2.5x and 1.3x for the same fix)",
    ),
}  # fmt: skip


def execute(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, env=clean_env() | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def script(command: str) -> list[str]:
    first, *rest = command.split()
    return [str(EXAMPLES / first), *rest]


def report_of(session: Path, cwd: Path) -> dict:
    return json.loads(execute([sys.executable, "-m", "hotloop", "report", str(session), "--json"], cwd))


def by_spans(system: System, cwd: Path) -> dict[str, float]:
    """Shares of the loop, by the system's own spans: of all the parts it names together."""
    execute([sys.executable, *script(system.command), *system.profiled.split(), "--out", "spans"], cwd)
    (session,) = {path.parent for path in (cwd / "spans").rglob("session.json")}
    report = report_of(session, cwd)
    seconds = {row["name"]: row["union_s"] for row in report["operations"]}
    whole = sum(seconds.get(name, 0.0) for part in ("learn", "collect") for name in system.parts[part][0])
    return {part: sum(seconds.get(name, 0.0) for name in spans) / whole for part, (spans, _) in system.parts.items()}


def by_hooks(system: System, cwd: Path) -> tuple[dict[str, float], dict]:
    """The same, without its spans."""
    run = [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", "run"]
    execute([*run, str(SPANLESS), *script(system.command), "--out", "out"], cwd)
    report = report_of(cwd / "run", cwd)
    shares = {}
    for phase in report["phases"]:
        shares[phase["phase"]] = phase["share"]
        shares |= {f"{phase['phase']}/{part['name']}": part["share"] for part in phase["parts"]}
    whole = shares.get("learn", 0.0) + shares.get("collect", 0.0)
    return {part: sum(shares.get(name, 0.0) for name in names) / whole for part, (_, names) in system.parts.items()}, report


def compare(system: System, runs: int) -> dict:
    spans: list[dict[str, float]] = []
    hooks: list[dict[str, float]] = []
    report: dict = {}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            spans.append(by_spans(system, Path(folder)))
            found, report = by_hooks(system, Path(folder))
            hooks.append(found)
    parts = {
        part: [statistics.median(x[part] for x in spans) * 100, statistics.median(x[part] for x in hooks) * 100]
        for part in system.parts
    }
    findings = [
        {k: f[k] for k in ("cause", "title", "file", "line", "predicted_speedup", "severity") if k in f}
        for f in report["findings"]
    ]
    return {"parts": parts, "findings": findings, "owners": report["owners"], "direct": report["direct_coverage"]}


def fix(system: System, pairs: int) -> dict:
    base = " ".join(script(system.command))
    with tempfile.TemporaryDirectory() as folder:
        commands = [f"{base} {arguments} --out {name}" for arguments, name in ((system.before, "a"), (system.after, "b"))]
        out = execute(
            [sys.executable, "-m", "hotloop", "ab", *commands, "--pairs", str(pairs), "--out", "ab", "--json", "--seed", "1"],
            Path(folder),
        )
    return json.loads(out)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default=",".join(SYSTEMS))
    parser.add_argument("--skip-ab", action="store_true")
    parser.add_argument("--out", metavar="FILE", help="keep everything as JSON")
    arguments = parser.parse_args()
    results: dict[str, dict] = {}
    for name in arguments.only.split(","):
        system = SYSTEMS[name]
        results[name] = found = compare(system, arguments.runs)
        print(f"\n{name}  {system.command}")
        for part, (spans, hooks) in found["parts"].items():
            print(f"  {part:<10} spans {spans:5.1f} %   hotloop run {hooks:5.1f} %   {hooks - spans:+.1f} points")
        for finding in found["findings"]:
            print(f"  finding: {finding['cause']}: {finding['title']}")
        if not arguments.skip_ab:
            found["ab"] = answer = fix(system, arguments.pairs)
            gain = answer["speedup"]
            print(f"  fix: {system.fix}; claim: {system.claim}")
            print(
                f"  ab: {answer['verdict']}, {gain['mid']:.2f}x ({gain['low']:.2f}-{gain['high']:.2f}), {answer['pairs']} pairs"
            )
        if arguments.out:
            Path(arguments.out).write_text(json.dumps(results, indent=1) + "\n")
        sys.stdout.flush()
    top, ours = ({name: largest(found, which) for name, found in results.items()} for which in (0, 1))
    off = {name: abs(r["parts"][top[name]][0] - r["parts"][top[name]][1]) for name, r in results.items()}
    print("\nlargest part, points apart: " + ", ".join(f"{name} {top[name]} {value:.1f}" for name, value in off.items()))
    return int(top != ours or any(value > 3 for value in off.values()))


def largest(found: dict, which: int) -> str:
    """By the spans (0) or by us (1)."""
    return max(("learn", "collect"), key=lambda part: found["parts"][part][which])


if __name__ == "__main__":
    raise SystemExit(main())
