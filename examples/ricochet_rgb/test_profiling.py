"""Does the profiling of this example work here? Runs it for real, small, and says what it found.

    python test_profiling.py             keeps the files it wrote, in a new folder profiling_test_…
    python test_profiling.py --cleanup   removes that folder at the end

Nothing is simulated: the spans are those of a short training run.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from math import isclose
from pathlib import Path
from typing import Any

import train_agent
from profiling import REAL_NAMES, get_profiler, profile, profile_function
from rendering import RgbObserver
from ricochet import Game, Rules

from hotloop import start, stop

HERE = Path(__file__).resolve().parent
SMALL = ("--timesteps=384", "--envs=8", "--rollout-steps=16", "--minibatches=2", "--hidden=8", "--image-size=32", "--cell-px=8")

DOCUMENTED = {
    "Environment": [
        "env_rgb_observation_generation",
        "env_rgb_rendering",
        "env_rgb_resizing",
        "env_rgb_draw_grid",
        "env_rgb_draw_walls",
        "env_rgb_draw_robots",
        "env_rgb_draw_target",
    ],
    "Model": [
        "convlstm_forward_pass",
        "convlstm_boundary_padding",
        "convlstm_conv_encoder",
        "convlstm_skip_connection",
        "convlstm_layers",
        "convlstm_global_pooling",
        "convlstm_projection",
    ],
    "Policy": [
        "recurrent_policy_forward",
        "recurrent_policy_get_hidden_states",
        "recurrent_policy_action_value",
        "recurrent_policy_action_dist",
        "recurrent_policy_action_sampling",
    ],
    "Training": list(REAL_NAMES.values()),
}


def check(fact: str, holds: bool, detail: Any = "") -> None:
    print(f"{'ok  ' if holds else 'FAIL'}  {fact}{f': {detail}' if detail != '' else ''}", flush=True)
    if not holds:
        raise SystemExit(1)


def check_own_spans(folder: Path) -> None:
    """The document's Custom Profiling and Accessing Profiler."""
    rules = Rules()
    game, observer = Game(rules, random.Random(0)), RgbObserver(rules)

    @profile_function("my_function", track_memory=True)
    def my_function() -> None:
        with profile("my_operation", track_memory=True):
            observer.render(game)

    profiler = get_profiler()
    start("test_profiling", out=folder / "runs")
    my_function()
    profiler.reset()
    my_function()
    profiler.disable()
    my_function()
    profiler.enable()
    my_function()
    stop()
    calls = {name: row["call_count"] for name, row in profiler.summary()["operations"].items()}
    check("with profile(...) and @profile_function", calls.get("my_operation") == calls.get("my_function") == 2)
    check("reset() forgets, disable() pauses, enable() goes on", calls.get("env_rgb_rendering") == 2)


def check_training(folder: Path) -> None:
    train_agent.main(["--obs-mode", "rgb_image", "--convlstm", "--enable-profiling", "--out", str(folder), *SMALL])
    report = json.loads((folder / "profiling_report.json").read_text())
    summary = report["summary"]
    operations = summary["operations"]
    for title, names in DOCUMENTED.items():
        missing = [name for name in names if not operations.get(name, {}).get("call_count")]
        check(f"{title} operations were measured", not missing, ", ".join(missing) or f"{len(names)} of {len(names)}")
    largest = max(row["share"] for row in operations.values())
    check("no operation has more than all of the time", largest <= 1, f"largest {largest:.1%}")
    books = sum(row["wall_self_time"] for row in operations.values())
    books += summary["waiting_time"] + summary["unattributed_time"] + summary["profiler_time"]
    check("own times, waiting, unattributed and profiler are the wall time", isclose(books, summary["wall_time"], rel_tol=1e-6))
    check("little is unattributed", summary["coverage"] >= 0.5, f"{1 - summary['coverage']:.1%}")
    check("memory was followed", len(report["memory_snapshots"]) > 0, f"{len(report['memory_snapshots'])} snapshots")


def check_analyzer(folder: Path) -> None:
    files = {"--output": "analysis.txt", "--charts": "performance.png", "--detailed": "detailed_analysis.json"}
    command = [sys.executable, "-m", "profiling.analyzer", "--input", str(folder / "profiling_report.json")]
    for flag, name in files.items():
        command += [flag, str(folder / name)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    check("python -m profiling.analyzer", done.returncode == 0, done.stderr.strip())
    check("the analysis ranks the operations", "TOP 10 BOTTLENECKS" in (folder / "analysis.txt").read_text())
    check("the charts are a picture", (folder / "performance.png").read_bytes().startswith(b"\x89PNG"))
    detailed = json.loads((folder / "detailed_analysis.json").read_text())
    check("the details hold categories", "Rendering" in detailed["summary"]["categories"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cleanup", action="store_true", help="remove the files at the end")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="profiling_test_", dir=Path.cwd()))
    try:
        check_own_spans(folder)
        check_training(folder)
        check_analyzer(folder)
    finally:
        if args.cleanup:
            shutil.rmtree(folder)
    print(f"all checks passed; {'removed' if args.cleanup else 'files in'} {folder.name}")


if __name__ == "__main__":
    main()
