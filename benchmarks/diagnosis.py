"""Are the findings right? Each case runs bare and with its fix, in turns, then under `hotloop run`; what that says is scored.

    python benchmarks/diagnosis.py [--only CASE ...] [--cases DIR] [--repeats N] [--json FILE]
    (pip install -c constraints.txt torch gymnasium stable-baselines3 pandas pillow tensorboard; about a minute a case)

A folder of cases holds `cases/NAME.py` and `truth.json` (tests/diagnosis/README.md). The script is copied under a name that
gives nothing away. Bare and fixed times are kept per script and machine, so a second run only runs HotLoop. Exit code 1: a
cause was missed, a healthy script raised an alarm, or a case failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "diagnosis"
CACHE = Path.home() / ".cache" / "hotloop" / "diagnosis.json"
LAST_LINE = re.compile(r"^env_steps=(\d+) updates=(\d+) seconds=([\d.]+)\s*$", re.MULTILINE)
CLOSE = 0.25  # a prediction this near to the measured gain is right
ALARM = 1.25  # from this predicted gain on a finding is a warning: too loud for a healthy script
RANKS = 3  # a right cause further down helps nobody
LIMIT_S = 900

Finding = dict[str, Any]


class CaseFailed(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding may point: `file` is "self" for the script, else the end of a path."""

    file: str
    function: str
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Truth:
    case: str
    causes: tuple[str, ...]  # the cause first, then what is accepted in its place
    places: tuple[Place, ...]

    @property
    def healthy(self) -> bool:
        return self.causes[0] == "none"


@dataclass(frozen=True, slots=True)
class Score:
    """What one session's findings got right; None where the question does not arise."""

    said: tuple[str, ...]
    first: bool
    placed: bool | None = None
    predicted: float | None = None
    error: float | None = None
    inside: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    case: str
    cause: str
    bare_s: float
    fixed_s: float
    actual: float
    overhead: float | None
    score: Score | None


def load_truths(folder: Path) -> list[Truth]:
    truths = []
    for entry in json.loads((folder / "truth.json").read_text()):
        places = (Place(p["file"], p["function"], tuple(p["lines"]) if p.get("lines") else None) for p in entry["where"])
        truths.append(Truth(entry["case"], (entry["cause"], *entry.get("accept_causes", ())), tuple(places)))
    return truths


def points_at(finding: Finding, place: Place, script: str) -> bool:
    """The same file, and the same function or a line inside it. A bare method name may stand for its qualified one."""
    file = PurePosixPath(str(finding.get("file") or "").replace(os.sep, "/"))
    wanted = PurePosixPath(script if place.file == "self" else place.file)
    if file.parts[-len(wanted.parts) :] != wanted.parts:
        return False
    function = str(finding.get("function") or "").replace("<locals>.", "")
    if function and (place.function == function or f".{function}".endswith(f".{place.function}")):
        return True
    if function and "." not in function and function == place.function.rpartition(".")[2]:
        return True
    line = finding.get("line")
    return isinstance(line, int) and place.lines is not None and place.lines[0] <= line <= place.lines[1]


def score_findings(truth: Truth, findings: list[Finding] | None, script: str, actual: float) -> Score:
    if findings is None:
        return Score(said=("(no findings.json)",), first=False)
    said = tuple(str(finding.get("cause")) for finding in findings[:RANKS])
    if truth.healthy:
        return Score(said, first=all(gain(finding, "mid") < ALARM for finding in findings))
    found = next((finding for finding in findings[:RANKS] if finding.get("cause") in truth.causes), None)
    if found is None:
        return Score(said, first=False)
    middle = gain(found, "mid")
    return Score(
        said,
        first=found is findings[0],
        placed=any(points_at(found, place, script) for place in truth.places),
        predicted=middle,
        error=abs(middle / actual - 1),
        inside=gain(found, "low") <= actual <= gain(found, "high"),
    )


def gain(finding: Finding, bound: str) -> float:
    """A finding without a prediction predicts nothing to gain."""
    return float((finding.get("predicted_speedup") or {}).get(bound, 1.0))


def read_findings(session: Path) -> list[Finding] | None:
    try:
        return list(json.loads((session / "findings.json").read_text())["findings"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_script(command: list[str], folder: Path, fixed: bool = False) -> tuple[float, list[int]]:
    """The seconds the script says its training took, and its work: environment steps and updates."""
    environment = {name: value for name, value in os.environ.items() if name != "FIXED"} | ({"FIXED": "1"} if fixed else {})
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        raise CaseFailed(f"{' '.join(command)} took longer than {LIMIT_S} s") from late
    lines = LAST_LINE.findall(done.stdout)
    if done.returncode or not lines:
        raise CaseFailed(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    steps, updates, seconds = lines[-1]
    return float(seconds), [int(steps), int(updates)]


def copy_neutrally(script: Path, folder: str) -> Path:
    digest = hashlib.sha256(script.stem.encode()).hexdigest()[:6]
    return Path(shutil.copy(script, Path(folder) / f"train_{digest}.py"))


def time_case(script: Path, repeats: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"bare": [], "fixed": []}
    for _ in range(repeats):
        for variant, seconds in times.items():
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, copy_neutrally(script, folder).name]
                seconds.append(run_script(command, Path(folder), fixed=variant == "fixed")[0])
    return times


def profile_case(script: Path, keep: Path | None) -> tuple[float, list[Finding] | None, str]:
    """Seconds under HotLoop, its findings, and the name the script had."""
    with tempfile.TemporaryDirectory() as folder:
        copy, session = copy_neutrally(script, folder), Path(folder) / "session"
        command = [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", str(session), copy.name]
        seconds, _ = run_script(command, Path(folder))
        findings = read_findings(session)
        if keep is not None:
            shutil.copytree(session, keep / script.stem, dirs_exist_ok=True)
        return seconds, findings, copy.name


class Timings:
    """Bare and fixed seconds in a file, by script text and machine. A file that cannot be read counts as empty."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        try:
            self.known: dict[str, dict[str, list[float]]] = {} if fresh else json.loads(path.read_text())
        except (OSError, ValueError):
            self.known = {}

    def measure(self, script: Path, repeats: int) -> tuple[float, float]:
        key = f"{describe_machine()} {hashlib.sha256(script.read_bytes()).hexdigest()[:16]}"
        if len(self.known.get(key, {}).get("bare", ())) < repeats:
            self.known[key] = time_case(script, repeats)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.known, indent=1))
        return statistics.median(self.known[key]["bare"]), statistics.median(self.known[key]["fixed"])


def describe_machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{platform.machine()} {model} {os.cpu_count()} cores, Python {platform.python_version()}"


def judge_case(truth: Truth, script: Path, timings: Timings, options: argparse.Namespace) -> Row:
    bare_s, fixed_s = timings.measure(script, options.repeats)
    actual = 1.0 if truth.healthy else bare_s / fixed_s
    overhead, score = None, None
    if not options.times_only:
        seconds, findings, name = profile_case(script, options.keep)
        overhead, score = seconds / bare_s, score_findings(truth, findings, name, actual)
    return Row(truth.case, truth.causes[0], bare_s, fixed_s, actual, overhead, score)


def show_number(value: float | bool | None, form: str = ".2f") -> str:
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else format(value, form)


def print_row(row: Row) -> None:
    text = f"{row.case:<34} {row.bare_s:6.2f} {row.fixed_s:6.2f} {row.actual:6.2f}"
    if row.score is not None:
        s = row.score
        cells = (s.first, s.placed, s.predicted, s.error, s.inside, row.overhead)
        text += "".join(f" {show_number(cell):>6}" for cell in cells) + f"  {', '.join(s.said) or '(nothing)'}"
    print(text, flush=True)


def count_totals(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """How many of how many, for each question. A finding that was not made is neither in place nor near."""
    sick = [row.score for row in rows if row.score and row.cause != "none"]
    well = [row.score for row in rows if row.score and row.cause == "none"]
    return {
        "right cause first": (sum(s.first for s in sick), len(sick)),
        "right place": (sum(bool(s.placed) for s in sick), len(sick)),
        f"prediction within {CLOSE:.0%}": (sum(s.error is not None and s.error <= CLOSE for s in sick), len(sick)),
        "measured gain inside the interval": (sum(bool(s.inside) for s in sick), len(sick)),
        "healthy without an alarm": (sum(s.first for s in well), len(well)),
    }


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=CASES, metavar="DIR", help="folder with cases/ and truth.json")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="cases whose names begin so")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="bare and fixed runs in turns (default 3)")
    parser.add_argument("--times-only", action="store_true", help="measure bare and fixed, do not run HotLoop")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FILE", help="where bare and fixed times are kept")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the sessions there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and totals there")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    if not (options.cases / "truth.json").is_file():
        parser.error(f"there is no truth.json in {options.cases}; --cases names the folder that holds it and cases/")
    return options


def main() -> int:
    options = parse_options()
    truths = load_truths(options.cases)
    chosen = [t for t in truths if not options.only or t.case.startswith(tuple(options.only))]
    if not chosen:
        raise SystemExit(f"no case begins with {' or '.join(options.only)}; there are: {', '.join(t.case for t in truths)}")
    timings = Timings(options.cache, options.fresh)
    heads = (
        "bare s",
        "fixed",
        "actual",
        *(() if options.times_only else ("first", "place", "pred", "error", "inside", "cost")),
    )
    print(f"{'case':<34}" + "".join(f" {head:>6}" for head in heads) + ("" if options.times_only else "  said"))
    rows, failed = [], 0
    for truth in chosen:
        try:
            rows.append(judge_case(truth, options.cases / "cases" / f"{truth.case}.py", timings, options))
        except CaseFailed as failure:
            print(f"{truth.case} failed: {failure}", file=sys.stderr)
            failed += 1
        else:
            print_row(rows[-1])
    totals = count_totals(rows)
    costs = [row.overhead for row in rows if row.overhead is not None]
    if costs:
        print()
        for question, (right, of) in totals.items():
            print(f"  {question:<36} {right:>3} of {of}")
        print(f"  {'run ÷ bare, median (most)':<36} {statistics.median(costs):.3f} ({max(costs):.3f})")
    if options.json is not None:
        content = {"machine": describe_machine(), "rows": [asdict(row) for row in rows], "totals": totals}
        options.json.write_text(json.dumps(content, indent=1))
    return int(failed > 0 or any(row.score is not None and not row.score.first for row in rows))


if __name__ == "__main__":
    sys.exit(main())
