"""Is what `hotloop ab` says of a job true? 40 real comparisons beside the bare truth, and 40 of a program with itself.

    python benchmarks/ab_truth.py [--quick] [--only KIND …] [--part N/M] [--seconds BUDGET] [--results FILE] [--fresh] [--list]
    python benchmarks/ab_truth.py --only rllib --python /path/to/one/that/has/ray    (the first of several that has it is taken)
    (pip install -c constraints.txt torch stable-baselines3; kind rllib: ray[rllib]; about 130 minutes on two cores)

The scripts are in benchmarks/ab. They do the same work in both variants (env steps, updates) and print the time of their loop.
Bare: both run without HotLoop in turns (ABBA), half of the pairs before `hotloop ab` and half after it; the speed-up is the
ratio of loop times per env step, pair by pair, with a t-interval on the logarithms. Scored: does the interval of
`hotloop ab "A" "B" --json` hold the bare speed-up? The bare one has an error of its own, so that also a faultless `ab` holds
it in less than 95 of 100; how often stands beside the score. Where other programs take the cores, the truth itself changes
between the bare runs and those of `ab`: let this run alone. A second ratio is free of that: the one of the loop times which
the scripts printed in the very runs that `ab` judged.
A/A: the same program on both sides; faster or slower is a false alarm.

Finished comparisons are lines of JSON in a file, with a digest of HotLoop's source: a later call goes on where this one ended,
and measures again what another HotLoop had measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scipy import stats

from benchmarks.measure import Table, clean_env
from benchmarks.run.programs import Failure, run_command
from benchmarks.run_overhead import Ratio, geometric_ratio

SCRIPTS = Path(__file__).resolve().parent / "ab"
RESULTS = Path.home() / ".cache" / "hotloop" / "ab_truth.jsonl"
HELD_SHARE, ALARM_SHARE = 0.9, 0.1  # 36 and 4 of 40
PAIRS = 5  # the least that gets a verdict
FAR = 1.15  # an answer off by more than this factor is listed as wrong whatever the intervals say
LIMIT_S = 900
CANNOT = 3
NEEDS = {"sb3": "stable_baselines3", "vector": "gymnasium", "threads": "gymnasium", "workers": "gymnasium", "rllib": "ray"}
RUN_S = {"sb3": 7.5, "rllib": 20.0}  # of one run with all around it, to keep to a budget; else 3.5
BARE_PAIRS = {"sb3": 14, "rllib": 8}  # dear to start; else 20: the truth should be better known than what it judges
SERIAL = {
    "sb3": "--vec dummy",
    "vector": "--vec sync",
    "threads": "--pool loop",
    "workers": "--pool loop",
    "rllib": "--runners 0",
}
PARALLEL = {
    "sb3": "--vec subproc", "vector": "--vec async", "threads": "--pool threads", "workers": "--pool processes",
    "rllib": "--runners 2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One program with its settings; A steps its environments one after the other, B side by side."""

    kind: str
    setting: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.setting.replace('--', '')}"

    def command(self, letter: str) -> list[str]:
        variant = SERIAL if letter == "A" else PARALLEL
        return [f"{self.kind}.py", *variant[self.kind].split(), *self.setting.split()]


SETTINGS = {
    "sb3": (
        "--algo ppo --envs 4 --n-steps 64 --steps 4096",
        "--algo a2c --work sleep:2 --envs 8 --n-steps 8 --steps 768",
        "--algo dqn --envs 2 --steps 2400",
        "--algo ppo --work sleep:2 --envs 4 --n-steps 64 --steps 768",
        "--algo a2c --envs 4 --n-steps 5 --steps 5000",
        "--algo ppo --work python:2 --envs 2 --n-steps 64 --steps 768 --start default",
        "--algo dqn --work sleep:4 --envs 4 --steps 400",
        "--algo ppo --envs 8 --n-steps 32 --steps 5120",
        "--algo a2c --work python:2 --envs 2 --n-steps 16 --steps 768",
    ),
    "vector": (
        "--envs 4 --steps 12288",
        "--work sleep:1 --envs 4 --steps 1280",
        "--work python:1 --envs 2 --steps 1280",
        "--work numpy:4 --envs 4 --steps 384",
        "--envs 2 --steps 9216",
        "--work sleep:4 --envs 2 --steps 384",
        "--work python:3 --envs 4 --steps 512",
        "--work sleep:2 --envs 8 --steps 768",
        "--work numpy:2 --envs 2 --steps 640",
        "--envs 8 --steps 16384",
    ),
    "threads": (
        "--work sleep:1 --envs 4 --steps 1280",
        "--envs 4 --steps 24576",
        "--work numpy:4 --envs 4 --steps 384",
        "--work python:1 --envs 4 --steps 1280",
        "--work sleep:2 --envs 4 --steps 640 --learner torch",
        "--work sleep:3 --envs 8 --steps 512",
        "--work numpy:2 --envs 2 --steps 640",
        "--envs 2 --steps 16384",
        "--work sleep:2 --envs 2 --steps 640",
        "--work numpy:2 --envs 2 --steps 640 --learner torch",
        "--work numpy:1 --envs 8 --steps 1536",
    ),
    "workers": (
        "--work python:2 --envs 2 --steps 640",
        "--work sleep:1 --envs 4 --steps 1280",
        "--envs 4 --steps 12288",
        "--work sleep:2 --envs 4 --steps 640 --learner torch",
        "--work numpy:2 --envs 2 --steps 640",
        "--work sleep:3 --envs 8 --steps 512",
        "--work python:3 --envs 4 --steps 512",
        "--envs 2 --steps 9216",
        "--work python:2 --envs 2 --steps 640 --learner torch",
    ),
    "rllib": ("--work python:1 --iterations 3",),
}
QUICK = {"sb3": 2, "vector": 2, "threads": 1, "workers": 1, "rllib": 0}
QUICK_ITSELF = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """What is measured as a whole: a case against the bare truth, or one of its variants against itself."""

    case: Case
    itself: str = ""  # A or B

    @property
    def key(self) -> str:
        return f"{self.case.name} {self.itself}".strip()


@dataclass(frozen=True, slots=True)
class Said:
    """What `hotloop ab` answered, and the loop times its runs printed: `own` is A's over B's."""

    verdict: str
    reason: str | None  # why there is no verdict
    unit: str
    mid: float
    low: float | None
    high: float | None
    own: float | None


def make_cases() -> list[Case]:
    """All kinds in turns, so that a part of the list is a fair part."""
    rows = [[Case(kind, setting) for setting in settings] for kind, settings in SETTINGS.items()]
    longest = max(len(row) for row in rows)
    return [row[number] for number in range(longest) for row in rows if number < len(row)]


def make_units(options: argparse.Namespace) -> list[Unit]:
    cases = make_cases()
    if options.quick:
        cases = [case for case in cases if case in {Case(k, s) for k, n in QUICK.items() for s in SETTINGS[k][:n]}]
    itself = cases[:QUICK_ITSELF] if options.quick else cases
    alone = {case: Unit(case, "AB"[number % 2]) for number, case in enumerate(itself)}
    units = [unit for case in cases for unit in (Unit(case), alone.get(case)) if unit is not None]
    part, parts = options.part
    chosen = {Case(kind, setting) for kind in options.only for setting in SETTINGS[kind][part - 1 :: parts]}
    return [unit for unit in units if unit.case in chosen]


# ---- running ----


def run(command: Sequence[str]) -> str:
    """Standard output."""
    environment = clean_env() | {"OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
    code, output, errors = run_command(command, SCRIPTS, environment, LIMIT_S)
    if code:
        raise Failure(f"ended with {code}: {(errors.strip().splitlines() or ['it said nothing'])[-1]}")
    return output


def read_loop(output: str) -> tuple[float, int, int]:
    """Seconds, env steps and updates by the script's own word."""
    for line in reversed(output.splitlines()):
        if line.startswith("LOOP "):
            _, seconds, steps, updates = line.split()
            return float(seconds), int(steps), int(updates)
    raise Failure("did not print its loop time")


def run_bare(case: Case, python: str, pairs: range, per_step: dict[str, list[float]], work: set[tuple[int, int]]) -> None:
    for pair in pairs:
        for letter in "AB" if pair % 2 == 0 else "BA":
            seconds, steps, updates = read_loop(run([python, *case.command(letter)]))
            per_step[letter].append(seconds / steps)
            work.add((steps, updates))
    if len(work) > 1:
        raise Failure(f"the variants do not do the same work: {sorted(work)}")


def run_ab(a: Sequence[str], b: Sequence[str], python: str, number: int) -> Said:
    with tempfile.TemporaryDirectory(prefix="ab-truth-") as scratch:
        folder = Path(scratch) / "runs"
        output = run([
            python, "-m", "hotloop", "ab", f"python {' '.join(a)}", f"python {' '.join(b)}", "--pairs", str(PAIRS), "--json",
            "--seed", str(number), "--out", str(folder),
        ])  # fmt: skip
        said: dict[str, Any] = json.loads(output[output.index("{") :])
        own = read_own(folder)
    speedup = said["speedup"]
    verdict = "refused" if said.get("refused") else str(said["verdict"])
    return Said(verdict, said.get("reason"), str(said["unit"]), speedup["mid"], speedup["low"], speedup["high"], own)


def read_own(folder: Path) -> float | None:
    times: dict[str, list[float]] = {"A": [], "B": []}
    for place in sorted(folder.glob("[0-9]*-[AB]")):
        try:
            seconds, steps, _ = read_loop((place / "output.txt").read_text())
        except (OSError, Failure):
            return None
        times[place.name[-1]].append(seconds / steps)
    if not times["A"] or len(times["A"]) != len(times["B"]):
        return None
    return geometric_ratio(times["A"], times["B"]).mean


def measure(unit: Unit, python: str, bare_pairs: int, number: int) -> dict[str, Any]:
    case = unit.case
    if unit.itself:
        command = case.command(unit.itself)
        return {"ab": asdict(run_ab(command, command, python, number))}
    per_step: dict[str, list[float]] = {"A": [], "B": []}
    work: set[tuple[int, int]] = set()
    run_bare(case, python, range(bare_pairs // 2), per_step, work)
    said = run_ab(case.command("A"), case.command("B"), python, number)
    run_bare(case, python, range(bare_pairs // 2, bare_pairs), per_step, work)
    return {"ab": asdict(said), "bare": asdict(geometric_ratio(per_step["A"], per_step["B"])), "work": list(min(work))}


# ---- what is kept ----


def digest_of_hotloop(python: str) -> str:
    """Of the source that this interpreter would run."""
    found = run([python, "-c", "import importlib.util as u; print(u.find_spec('hotloop').origin)"])
    folder = Path(found.strip().splitlines()[-1]).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".h", ".c"):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def read_kept(path: Path, code: str) -> dict[str, dict[str, Any]]:
    """By key, the latest of this HotLoop; lines that cannot be read do not count."""
    kept: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
            if row["code"] == code:
                kept[row["key"]] = row
        except (ValueError, KeyError, TypeError):
            continue
    return kept


def has_module(python: str, module: str) -> bool:
    finds = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", finds], env=clean_env(), capture_output=True).returncode == 0


def run_units(units: Sequence[Unit], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of all units that are done, old and new. A budget ends it where the next unit would not fit."""
    code = digest_of_hotloop(options.python[0])
    kept = {} if options.fresh else read_kept(options.results, code)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    pythons = {kind: next((p for p in options.python if has_module(p, module)), None) for kind, module in NEEDS.items()}
    began = time.monotonic()
    for number, unit in enumerate(units):
        kind = unit.case.kind
        if unit.key in kept and "failed" not in kept[unit.key]:
            yield kept[unit.key]
            continue
        bare_pairs = options.bare_pairs or BARE_PAIRS.get(kind, 20)
        expected_s = RUN_S.get(kind, 3.5) * 2 * (PAIRS + (0 if unit.itself else bare_pairs * 0.6))
        python = pythons[kind]
        if python is None:
            print(f"  {unit.key}: left out, there is no {NEEDS[kind]}", file=sys.stderr, flush=True)
            continue
        if options.seconds and time.monotonic() - began + expected_s > options.seconds:
            print(f"  {unit.key}: left out, it does not fit into the {options.seconds:g} s", file=sys.stderr, flush=True)
            continue
        start = time.monotonic()
        try:
            row = measure(unit, python, bare_pairs, options.seed + number)
        except (Failure, ValueError, KeyError) as failure:
            row = {"failed": f"{type(failure).__name__}: {failure}"}
        row |= {
            "key": unit.key,
            "kind": kind,
            "itself": unit.itself,
            "code": code,
            "seconds": round(time.monotonic() - start, 1),
        }
        with options.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"  {number + 1}/{len(units)} {row['seconds']:5.1f} s  {describe(row)}", file=sys.stderr, flush=True)
        yield row


# ---- scoring ----


def holds(row: dict[str, Any]) -> bool:
    """The interval of `ab` holds the bare speed-up."""
    if "failed" in row or row["ab"]["low"] is None or row["ab"]["high"] is None:
        return False
    return bool(row["ab"]["low"] <= row["bare"]["mean"] <= row["ab"]["high"])


def differs(row: dict[str, Any]) -> bool:
    """`ab` and the bare truth are further apart than both errors together allow (95 %)."""
    said, bare = row["ab"], row["bare"]
    if said["low"] is None or said["high"] is None:
        return False
    quantile = float(stats.t.ppf(0.975, PAIRS - 1))
    errors = [math.log(said["high"] / said["low"]) / 2 / quantile]
    errors.append(math.log(bare["high"] / bare["low"]) / 2 / float(stats.t.ppf(0.975, bare["pairs"] - 1)))
    together = math.hypot(*errors)
    freedom = together**4 / (errors[0] ** 4 / (PAIRS - 1) + errors[1] ** 4 / (bare["pairs"] - 1))
    return abs(math.log(said["mid"] / bare["mean"])) > float(stats.t.ppf(0.975, freedom)) * together


def contradicts(row: dict[str, Any]) -> bool:
    """A word for one side where the whole bare interval stands on the other."""
    bare, verdict = row["bare"], row["ab"]["verdict"]
    return bool((verdict == "faster" and bare["high"] < 1) or (verdict == "slower" and bare["low"] > 1))


def off_by(row: dict[str, Any], truth: float) -> float:
    """As a factor, 1 or more."""
    return math.exp(abs(math.log(row["ab"]["mid"] / truth)))


def expected_share(bare_pairs: int) -> float:
    """How often a faultless interval of PAIRS pairs holds the mean of as many bare ones, if both vary alike."""
    reach = float(stats.t.ppf(0.975, PAIRS - 1)) / math.sqrt(1 + PAIRS / bare_pairs)
    return 2 * float(stats.t.cdf(reach, PAIRS - 1)) - 1


def interval(low: float | None, high: float | None) -> str:
    return "no interval" if low is None or high is None else f"{low:.2f}–{high:.2f}"


def describe(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"FAILED {row['key']}: {row['failed']}"
    said = row["ab"]
    answer = f"ab {said['mid']:6.3f} [{interval(said['low'], said['high'])}] {said['verdict']}"
    own = "" if said["own"] is None else f", its runs' own loops {said['own']:.3f}"
    rest = "" if said["unit"] == "env_steps" else f", per {said['unit']}"
    rest += f" ({said['reason']})" if said.get("reason") else ""
    if row["itself"]:
        return f"{'ALARM ' if said['verdict'] in ('faster', 'slower') else 'ok    '} {row['key']} itself: {answer}{own}{rest}"
    bare = Ratio(**row["bare"])
    mark = "ok    " if holds(row) else "MISS  "
    return f"{mark} {row['key']}: bare {bare.mean:6.3f} [{interval(bare.low, bare.high)}], {answer}{own}{rest}"


def add_scores(table: Table, rows: Sequence[dict[str, Any]]) -> None:
    pairs = [row for row in rows if not row["itself"]]
    itself = [row for row in rows if row["itself"]]
    whole = [row for row in pairs if "failed" not in row]
    failed = [row for row in rows if "failed" in row]
    if pairs:
        held = sum(holds(row) for row in pairs)
        faultless = sum(expected_share(row["bare"]["pairs"]) for row in whole)
        note = f"of {len(pairs)}; a faultless ab: about {faultless:.1f}"
        table.add(
            "the interval of ab holds the bare speed-up",
            held,
            max(1, math.floor(HELD_SHARE * len(pairs))),
            "",
            above=True,
            note=note,
        )
    if whole:
        table.add("  further apart than both errors allow", sum(map(differs, whole)), None, "", note=f"of {len(whole)}")
        far = [off_by(row, row["bare"]["mean"]) for row in whole]
        table.add(
            f"  off the bare speed-up by more than {FAR} ×", sum(f > FAR for f in far), None, "", note=f"worst {max(far):.2f} ×"
        )
        table.add("  says faster where bare is slower, or the other way", sum(map(contradicts, whole)), 0, "")
        own = [off_by(row, row["ab"]["own"]) for row in whole if row["ab"]["own"] is not None]
        if own:
            note = f"worst {max(own):.3f} ×"
            table.add("  off the loops its own runs printed, median", statistics.median(own), None, "×", note=note)
    if itself:
        alarms = sum(row["ab"]["verdict"] in ("faster", "slower") for row in itself if "failed" not in row)
        table.add(
            "A/A: said faster or slower", alarms, math.floor(max(1, ALARM_SHARE * len(itself))), "", note=f"of {len(itself)}"
        )
    table.add("comparisons without an answer", len(failed), 0, "")


def parse_part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError("say e.g. 1/3")
    return int(part), int(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="6 comparisons and 4 A/A")
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), metavar="KIND")
    parser.add_argument(
        "--part", type=parse_part, default=(1, 1), metavar="N/M", help="every M-th of each kind, from the N-th on"
    )
    parser.add_argument("--seconds", type=float, default=0, metavar="BUDGET", help="begin nothing that does not fit")
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="the first that has what a kind needs runs it")
    parser.add_argument("--bare-pairs", type=int, default=0, help="0: 20, where programs start slowly fewer")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"finished comparisons [{RESULTS}]")
    parser.add_argument("--fresh", action="store_true", help="measure again what is finished")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="say what would be run")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    for python in options.python:
        if shutil.which(python) is None:
            parser.error(f"there is no {python}")
    if 0 < options.bare_pairs < 2:
        parser.error("an interval needs at least two pairs")
    units = make_units(options)
    if options.list:
        print("\n".join(unit.key for unit in units))
        return 0
    rows = list(run_units(units, options))
    if not rows:
        print("nothing was measured")
        return CANNOT
    print("\n".join(describe(row) for row in sorted(rows, key=lambda row: (row["itself"] != "", row["kind"]))))
    table = Table(f"hotloop ab against the bare truth: {len(rows)} of {len(units)} comparisons, {PAIRS} pairs each")
    add_scores(table, rows)
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
