"""Every figure the documentation states, measured again by one command, with date and class of machine.

    python -m benchmarks                    all of it, four hours; writes docs/figures.md
    python -m benchmarks --quick            smaller counts, an hour
    python -m benchmarks --only span_cost reader     these alone; the others keep what they said before

One benchmark runs at a time, so nothing disturbs what is timed. What each prints (of long ones the last 120 lines) stands in
the page, with its exit code: 0 all was as wanted, 1 something was missed, 3 it cannot run here (no GPU; what was measured where
there is one stays). The raw texts are kept in docs/figures.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import clean_env

ROOT = Path(__file__).resolve().parent.parent
PAGE, KEPT = ROOT / "docs" / "figures.md", ROOT / "docs" / "figures.json"
MOST_LINES = 120
CANNOT = 3
VERDICTS = {0: "all as wanted", 1: "something wanted was missed", CANNOT: "cannot run here"}


@dataclass(frozen=True)
class Benchmark:
    name: str
    question: str
    command: str  # below benchmarks/
    quick: str | None = None  # where smaller counts say something


BENCHMARKS = (
    Benchmark("span_cost", "What does a span cost, beside its peers?", "span_cost.py --peers", "span_cost.py"),
    Benchmark("import_time", "What does `import hotloop` cost?", "import_time.py"),
    Benchmark("accuracy", "Is every label's time right?", "accuracy.py"),
    Benchmark("long_run", "Does anything grow with the number of spans?", "long_run.py", "long_run.py 20000000"),
    Benchmark("reader", "How long does reading a large session take?", "reader.py"),
    Benchmark("html_report", "How large and how fast is the page?", "html_report.py"),
    Benchmark("trace_export", "What does exporting ten million events take?", "trace_export.py"),
    Benchmark("trend", "Does the trend test raise false alarms?", "trend.py", "trend.py --quick"),
    Benchmark("run_overhead", "What does `hotloop run` cost?", "run_overhead.py", "run_overhead.py --pairs 4"),
    Benchmark("run_peers", "What do other profilers cost?", "run_overhead.py --pairs 3 --peers"),
    Benchmark("run_accuracy", "Are its phases right?", "run_accuracy.py"),
    Benchmark("run_children", "Does it see workers and stragglers?", "run_children.py"),
    Benchmark("counts", "Are its counts right?", "counts.py"),
    Benchmark("ab_truth", "Is what `hotloop ab` says of a job true?", "ab_truth.py --seconds 3400", "ab_truth.py --quick"),
    Benchmark("wait_cost", "How late does recording a wait make a thread?", "wait_cost.py", "wait_cost.py --rounds 3"),
    Benchmark("crowded", "Are lines right where every core is busy?", "crowded.py", "crowded.py --seconds 3"),
    Benchmark(
        "threads", "Does it see what a thread does, and at what cost?", "threads.py", "threads.py --seconds 1 --rounds 2"
    ),
    Benchmark("diagnosis", "Are the findings right?", "diagnosis.py", "diagnosis.py --repeats 1 --only render gae logging"),
    Benchmark("optimizers", "Does a fused optimizer gain what is predicted?", "optimizers.py", "optimizers.py --only small"),
    Benchmark("mechanisms", "Is what time is spent on right?", "mechanisms", "mechanisms --seconds 4"),
    Benchmark("envs", "What do 8 environments gain, and what is predicted?", "envs", "envs --pairs 2"),
    Benchmark("probing", "What do the measurements after a run take and touch?", "probing"),
    Benchmark("statistics", "Are verdicts and intervals right?", "statistics --real 100", "statistics --quick"),
    Benchmark("seeds", "The seeds, closed", "seeds --pairs 10", "seeds --runs 1 --pairs 5"),
    Benchmark("examples", "What do hand-written spans cost the examples?", "examples.py", "examples.py 1"),
    Benchmark("sanitize", "Is the C recorder clean?", "native_checks.py sanitize"),
    Benchmark("coverage", "How much of it do tests reach?", "native_checks.py coverage"),
    Benchmark("fuzz", "Are damaged sessions read or refused?", "fuzz_reader.py", "fuzz_reader.py --count 3000 --step 997"),
    Benchmark("gpu_attribution", "Who gets the GPU's time?", "gpu/attribution.py"),
    Benchmark("gpu_bounds", "Does the truth lie between at least and at most?", "gpu/bounds.py"),
    Benchmark("gpu_rollout", "Is a blocking copy split rightly?", "gpu/rollout.py"),
    Benchmark("gpu_syncs", "Is a synchronisation added?", "gpu/syncs.py"),
    Benchmark("gpu_memory", "Are the peaks the allocator's?", "gpu/memory.py"),
    Benchmark("gpu_deep_window", "Is the deep window openable and folded?", "gpu/deep_window.py"),
    Benchmark("gpu_dqn", "What do device times cost a small DQN?", "gpu/overhead.py 12 DQN", "gpu/overhead.py 4 DQN"),
    Benchmark("gpu_ppo", "What do device times cost a small PPO?", "gpu/overhead.py 12 PPO", "gpu/overhead.py 4 PPO"),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    command: str
    date: str
    machine: str
    minutes: float
    code: int
    output: str


def machine_class() -> str:
    """The class, never the machine: cores, memory, system, Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    cores = len(os.sched_getaffinity(0))
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores, {memory:.0f} GiB{gpus()}, Python {platform.python_version()}"
    )


def gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True)
    return "" if said.returncode else "".join(f", {name.strip()}" for name in said.stdout.splitlines())


def measure(benchmark: Benchmark, quick: bool, timeout_s: float) -> Result:
    words = (benchmark.quick if quick and benchmark.quick else benchmark.command).split()
    command = [sys.executable, str(ROOT / "benchmarks" / words[0]), *words[1:]]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=clean_env(), timeout=timeout_s)
        code, output = done.returncode, done.stdout + (done.stderr if done.returncode not in VERDICTS else "")
    except subprocess.TimeoutExpired as error:
        text = error.stdout or b""
        code, output = 124, (text.decode(errors="replace") if isinstance(text, bytes) else text) + "\n(ran out of time)"
    minutes = (time.monotonic() - began) / 60
    shown = f"python benchmarks/{' '.join(words)}"
    return Result(shown, time.strftime("%Y-%m-%d"), machine_class(), round(minutes, 1), code, clean(output))


def clean(output: str) -> str:
    """Without colours, folders of this machine and what scrolls over itself; the last lines of a long text."""
    lines = [line.rpartition("\r")[2].rstrip() for line in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output).split("\n")]
    text = "\n".join(lines[-MOST_LINES:]).replace(str(ROOT) + os.sep, "").strip("\n")
    return re.sub(r"(/tmp|/var/tmp)/\S*", "(a temporary folder)", text)


def page(results: dict[str, Result]) -> str:
    parts = [
        "# All figures\n",
        "Measured by `python -m benchmarks` (`--quick`: smaller counts), one benchmark at a time; each says when and on what",
        "class of machine, and what it printed. The machines are shared: look at the ratios and the controls. What the figures",
        "mean stands in [accuracy](accuracy.md) and [PyTorch and the GPU](gpu.md).\n",
    ]
    for benchmark in BENCHMARKS:
        result = results.get(benchmark.name)
        parts.append(f"## {benchmark.question}\n")
        if result is None:
            parts.append(f"`python benchmarks/{benchmark.command}`: not measured since this page exists.\n")
            continue
        verdict = VERDICTS.get(result.code, f"ended with code {result.code}")
        parts.append(f"`{result.command}` · {result.date} · {result.machine} · {result.minutes} min · {verdict}\n")
        parts.append(f"```\n{result.output}\n```\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller counts")
    parser.add_argument("--only", nargs="+", choices=[b.name for b in BENCHMARKS], metavar="NAME", help="these alone")
    parser.add_argument("--timeout", type=float, default=60, metavar="MINUTES", help="for one benchmark (default 60)")
    arguments = parser.parse_args()
    results = {name: Result(**row) for name, row in (json.loads(KEPT.read_text()) if KEPT.exists() else {}).items()}
    missed = 0
    for benchmark in BENCHMARKS:
        if arguments.only and benchmark.name not in arguments.only:
            continue
        result = measure(benchmark, arguments.quick, arguments.timeout * 60)
        if result.code != CANNOT or benchmark.name not in results:  # what another machine measured stays
            results[benchmark.name] = result
        missed += result.code not in (0, CANNOT)
        print(f"{benchmark.name:<16} {result.minutes:5.1f} min  {VERDICTS.get(result.code, result.code)}", flush=True)
        KEPT.write_text(json.dumps({name: asdict(row) for name, row in results.items()}, indent=1) + "\n")
        PAGE.write_text(page(results))
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
