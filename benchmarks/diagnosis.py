"""Are the findings right? Each case runs bare and with its fix, in turns, then under `hotloop run`; what that says is scored.

    python benchmarks/diagnosis.py [--only CASE ...] [--cases DIR] [--repeats N] [--json FILE]
    python benchmarks/diagnosis.py --unseen               the half that nobody who works on the rules has read: totals only
    python benchmarks/diagnosis.py --keep DIR             sessions are kept there, and judged again from there if they are
    python benchmarks/diagnosis.py --residuals            also what became of the predictions, as analyse/findings/residuals.py
                                                          has it: not for the half that is only scored
    (pip install -c constraints.txt torch gymnasium stable-baselines3 pandas pillow tensorboard; about a minute a case)

A folder of cases holds `cases/NAME.py` and `truth.json` (tests/diagnosis/README.md). The script is copied under a name that
gives nothing away. Bare and fixed times are kept per script and machine, so a second run only runs HotLoop. Beside the findings
stands the trivial answer: the function of the script's own that most samples are in, in the same recording. Exit code 1: a
cause was missed, a healthy script raised an alarm, or a case failed.

Right first: the first finding has the cause, or its mechanism at one of the places. The rules are made looking at the cases
of tests/diagnosis/cases; those of tests/diagnosis/unseen are only scored. Who opens one of them moves it to the first, and
writes a new one.
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
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.analyse.findings.residuals import residual, told_from
from hotloop.errors import HotloopError
from hotloop.model.code import is_yours
from hotloop.store.findings import finding_data
from hotloop.store.reader import read_session

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "diagnosis"
UNSEEN = CASES / "unseen"
CACHE = Path.home() / ".cache" / "hotloop" / "diagnosis.json"
LAST_LINE = re.compile(r"^env_steps=(\d+) updates=(\d+) seconds=([\d.]+)\s*$", re.MULTILINE)
CLOSE = 0.25  # a prediction this near to the measured gain is right
HEALTHY = 1.15
ALARM = 1.25  # from this predicted gain on a finding is a warning: too loud for a healthy script
RANKS = 3  # a right cause further down helps nobody
LIMIT_S = 900
LEAST_TOLD = 1.05
MOST_APART = 1.5  # bare and recorded: beyond, the machine has changed between them

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
    mechanism: str = ""
    seconds: tuple[float, float] = (1.0, 1.0)  # bare and fixed, by the one who wrote it

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
    above: bool | None = None  # was more gained than it holds?
    width: float | None = None  # of the interval, high ÷ low
    share: float | None = None  # of the loop, that the finding is about
    known_by: str = ""
    trivial: bool | None = None  # is the hottest function of the script's own the place?
    headroom: float | None = None  # of the loop, with learning unchanged


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
        causes = (entry["cause"], *entry.get("accept_causes", ()))
        actual = entry.get("actual_speedup", 1.0)
        seconds = entry.get("bare_seconds", actual), entry.get("fixed_seconds", 1.0)
        truths.append(Truth(entry["case"], causes, tuple(places), entry.get("mechanism", ""), seconds))
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
        return Score(said=("(no findings)",), first=False)
    said = tuple(str(finding.get("cause")) for finding in findings[:RANKS])
    if truth.healthy:
        return Score(said, first=all(gain(finding, "mid") < ALARM for finding in findings))
    found = next((finding for finding in findings[:RANKS] if is_right(finding, truth, script)), None)
    if found is None:
        return Score(said, first=False)
    low, middle, high = (gain(found, bound) for bound in ("low", "mid", "high"))
    return Score(
        said,
        first=found is findings[0],
        placed=is_placed(found, truth, script),
        predicted=middle,
        error=abs(middle / actual - 1),
        inside=low <= actual <= high,
        above=actual > high,
        width=high / low,
        share=float(found.get("share") or 0.0),
        known_by=str(found.get("known_by") or ""),
    )


def is_right(finding: Finding, truth: Truth, script: str) -> bool:
    """The cause, or the mechanism at the place."""
    if finding.get("cause") in truth.causes:
        return True
    return bool(truth.mechanism) and finding.get("mechanism") == truth.mechanism and is_placed(finding, truth, script)


def is_placed(finding: Finding, truth: Truth, script: str) -> bool:
    return any(points_at(finding, place, script) for place in truth.places)


def gain(finding: Finding, bound: str) -> float:
    """A finding without a prediction predicts nothing to gain."""
    return float((finding.get("predicted_speedup") or {}).get(bound, 1.0))


def judge_session(session: Path, truth: Truth, script: str, actual: float) -> Score:
    """What the rules of today say of a recording, and what the trivial answer is."""
    try:
        diagnosis = diagnose(read_session(session))
    except HotloopError:
        return Score(said=("(no session)",), first=False)
    score = score_findings(truth, [finding_data(f) for f in diagnosis.findings], script, actual)
    hottest = find_hottest(diagnosis)
    trivial = None if truth.healthy else hottest is not None and is_placed(hottest, truth, script)
    return replace(score, trivial=trivial, headroom=diagnosis.limits.headroom)


def find_hottest(diagnosis: Diagnosis) -> Finding | None:
    """The function of the script's own that most samples of the training's thread are in, itself or in what it calls directly
    of others."""
    seen: Counter[tuple[str, str, int]] = Counter()
    for line in diagnosis.main_lines:
        if is_yours(line.file):
            seen[line.file, line.function, line.first_line] += line.samples
    if not seen:
        return None
    (file, function, first_line), _ = seen.most_common(1)[0]
    return {"file": file, "function": function, "line": first_line}


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


def profile_case(script: Path, truth: Truth, actual: float, keep: Path | None) -> tuple[float | None, Score]:
    """Seconds under HotLoop (None: recorded before), and what is found."""
    with tempfile.TemporaryDirectory() as folder:
        copy, session = copy_neutrally(script, folder), Path(folder) / "session"
        if keep is not None and (keep / script.stem / "session.json").exists():
            return None, judge_session(keep / script.stem, truth, copy.name, actual)
        command = [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", str(session), copy.name]
        seconds, _ = run_script(command, Path(folder))
        if keep is not None:
            shutil.copytree(session, keep / script.stem, dirs_exist_ok=True)
        return seconds, judge_session(session, truth, copy.name, actual)


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
    bare_s, fixed_s = timings.measure(script, options.repeats) if options.repeats else truth.seconds
    actual = 1.0 if truth.healthy else bare_s / fixed_s
    overhead, score = None, None
    if not options.times_only:
        seconds, score = profile_case(script, truth, actual, options.keep)
        overhead = seconds / bare_s if seconds is not None else None
    return Row(truth.case, truth.causes[0], bare_s, fixed_s, actual, overhead, score)


def show_number(value: float | bool | None, form: str = ".2f") -> str:
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else format(value, form)


def print_row(row: Row) -> None:
    text = f"{row.case:<34} {row.bare_s:6.2f} {row.fixed_s:6.2f} {row.actual:6.2f}"
    if row.score is not None:
        s = row.score
        cells = (s.first, s.placed, s.predicted, s.error, s.inside, s.width, s.share, s.trivial, row.overhead)
        text += "".join(f" {show_number(cell):>6}" for cell in cells) + f"  {', '.join(s.said) or '(nothing)'}"
    print(text, flush=True)


def count_totals(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """How many of how many, for each question. A finding that was not made is neither in place nor near."""
    sick = [row.score for row in rows if row.score and row.cause != "none"]
    well = [row.score for row in rows if row.score and row.cause == "none"]
    return {
        "right cause or mechanism first": (sum(s.first for s in sick), len(sick)),
        "right place": (sum(bool(s.placed) for s in sick), len(sick)),
        "right, and in place, first": (sum(s.first and bool(s.placed) for s in sick), len(sick)),
        "trivial answer: the hottest function": (sum(bool(s.trivial) for s in sick), len(sick)),
        f"prediction within {CLOSE:.0%}": (sum(s.error is not None and s.error <= CLOSE for s in sick), len(sick)),
        "measured gain inside the interval": (sum(bool(s.inside) for s in sick), len(sick)),
        "  more was gained than it holds": (sum(bool(s.above) for s in sick), len(sick)),
        "healthy without an alarm": (sum(s.first for s in well), len(well)),
        f"healthy with a headroom of {HEALTHY} at most": (sum((s.headroom or 9) <= HEALTHY for s in well), len(well)),
    }


def list_residuals(rows: list[Row]) -> dict[str, list[float]]:
    """By what they were known from, how far the measured gains were from what the model had expected: what is told is moved
    by the middle one of those known before. Not of gains too small to tell, nor where the machine changed meanwhile."""
    found: dict[str, list[float]] = {}
    for row in rows:
        same = row.overhead is None or 1 / MOST_APART < row.overhead < MOST_APART
        if same and row.score and row.score.predicted and min(row.score.predicted, row.actual) > LEAST_TOLD:
            expected = told_from(row.score.known_by, row.score.predicted)
            found.setdefault(row.score.known_by, []).append(round(residual(expected, row.actual), 2))
    return {kind: sorted(residuals) for kind, residuals in sorted(found.items())}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=CASES, metavar="DIR", help="folder with cases/ and truth.json")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="cases whose names begin so")
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="bare and fixed runs in turns (default 3; 0: by truth.json)"
    )
    parser.add_argument("--unseen", action="store_true", help="the cases nobody has read; says totals only")
    parser.add_argument("--times-only", action="store_true", help="measure bare and fixed, do not run HotLoop")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FILE", help="where bare and fixed times are kept")
    parser.add_argument("--residuals", action="store_true", help="what became of the predictions, by kind")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the sessions there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and totals there")
    options = parser.parse_args()
    if options.unseen:
        options.cases = UNSEEN
        if options.residuals:
            parser.error("intervals are made from the cases we look at; those of --unseen only score them")
    if options.repeats < 0:
        parser.error("--repeats must be 0 or more")
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
        *(() if options.times_only else ("first", "place", "pred", "error", "inside", "width", "share", "trivl", "cost")),
    )
    print(f"{'case':<34}" + "".join(f" {head:>6}" for head in heads) + ("" if options.times_only else "  said"))
    rows, failed = [], 0
    for truth in chosen:
        try:
            rows.append(judge_case(truth, options.cases / "cases" / f"{truth.case}.py", timings, options))
        except CaseFailed as failure:
            print("a case failed" if options.unseen else f"{truth.case} failed: {failure}", file=sys.stderr)
            failed += 1
        else:
            if options.unseen:
                print(".", end="", flush=True)
            else:
                print_row(rows[-1])
    totals = count_totals(rows)
    costs = [row.overhead for row in rows if row.overhead is not None]
    widths = [row.score.width for row in rows if row.score and row.score.width is not None]
    print()
    for question, (right, of) in totals.items() if not options.times_only else ():
        print(f"  {question:<44} {right:>3} of {of}")
    if widths:
        print(f"  {'width of the interval, high ÷ low, median':<44} {statistics.median(widths):.2f}")
    if costs:
        print(f"  {'run ÷ bare, median (most)':<44} {statistics.median(costs):.3f} ({max(costs):.3f})")
    for kind, residuals in list_residuals(rows).items() if options.residuals else ():
        print(f"  {kind}: {', '.join(map(str, residuals))}")
    if options.json is not None:
        shown = [] if options.unseen else [asdict(row) for row in rows]
        content = {"machine": describe_machine(), "rows": shown, "totals": totals}
        options.json.write_text(json.dumps(content, indent=1))
    return int(failed > 0 or any(row.score is not None and not row.score.first for row in rows))


if __name__ == "__main__":
    sys.exit(main())
