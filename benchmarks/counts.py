"""Are the counts right? Scripts that count their own work, run under `hotloop run`, number by number.

    python benchmarks/counts.py [--only NAME …] [--python PYTHON …] [--json FILE]
    (pip install -c constraints.txt torch stable-baselines3 torchrl; rllib_ppo: ray[rllib], tianshou_reinforce: tianshou, in
    another interpreter if they are only there: --python python /path/to/it; about five minutes)

The scripts are in benchmarks/counts. Their environments count their own steps, resets and ended episodes, in workers and
threads too, and each script fails if that is not what it asked for. What is compared: env steps (calls of the innermost
environment's step, evaluation left out), updates (optimizer steps), episodes, resets (calls of the innermost environment's
reset), autoresets (places of a vector step where an environment was only reset) and iterations (a rollout and what was
learned from it). A number that a script cannot know, or that has no meaning there, is "–". Wanted: all exact.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.one_answer import check_one_answer

from benchmarks.measure import Table, clean_env
from benchmarks.run.programs import Failure, run_command
from hotloop.store.reader import read_session

SCRIPTS = Path(__file__).resolve().parent / "counts"
NUMBERS = ("env_steps", "updates", "episodes", "resets", "autoresets", "iterations")
LIMIT_S = 300
CANNOT = 3


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    command: str
    needs: str = "torch"


CASES = (
    Case("sb3 PPO, one env", "sb3.py ppo", "stable_baselines3"),
    Case("sb3 PPO, 4 in SubprocVecEnv", "sb3.py ppo_subproc", "stable_baselines3"),
    Case("sb3 PPO with EvalCallback", "sb3.py ppo_eval", "stable_baselines3"),
    Case("sb3 A2C, 8 in DummyVecEnv", "sb3.py a2c", "stable_baselines3"),
    Case("sb3 DQN", "sb3.py dqn", "stable_baselines3"),
    Case("PPO, SyncVectorEnv", "cleanrl_ppo.py sync"),
    Case("PPO, AsyncVectorEnv", "cleanrl_ppo.py async"),
    Case("PPO, SyncVectorEnv, same step", "cleanrl_ppo.py same_step"),
    Case("DQN in one file", "cleanrl_dqn.py"),
    Case("REINFORCE, one env", "single.py reinforce"),
    Case("an env made anew each episode", "single.py anew"),
    Case("an env without reset", "single.py no_reset"),
    Case("own vector env, thread pool", "many.py executor"),
    Case("own vector env, queues", "many.py queues"),
    Case("own worker processes", "many.py processes"),
    Case("A3C, threads", "a3c.py"),
    Case("Q-learning without torch", "q_learning.py", "gymnasium"),
    Case("torchrl Collector", "torchrl_collector.py", "torchrl"),
    Case("RLlib PPO, 2 env runners", "rllib_ppo.py", "ray"),
    Case("tianshou REINFORCE", "tianshou_reinforce.py", "tianshou"),
)


@dataclass(frozen=True, slots=True)
class Count:
    """One number by the script's own count and by HotLoop's; `own` is None where it is not compared."""

    number: str
    own: int | None
    counted: int

    @property
    def exact(self) -> bool:
        return self.counted == self.own

    @property
    def text(self) -> str:
        if self.own is None:
            return "–"
        return f"{self.own}" if self.exact else f"{self.own} ≠ {self.counted}"


def run(command: list[str], folder: Path) -> str:
    """Standard output."""
    code, output, errors = run_command(command, folder, clean_env() | {"OMP_NUM_THREADS": "1"}, LIMIT_S)
    if code:
        lines = [line for line in errors.strip().splitlines() if not line.startswith("hotloop:")] or ["it said nothing"]
        raise Failure(f"ended with {code}: {lines[-1]}")
    return output


def read_own(output: str) -> dict[str, int | None]:
    for line in reversed(output.splitlines()):
        if line.startswith("OWN "):
            own: dict[str, int | None] = json.loads(line.removeprefix("OWN "))
            return own
    raise Failure("did not say its own count")


def count_case(case: Case, python: str) -> tuple[list[Count], str]:
    script, *arguments = case.command.split()
    with tempfile.TemporaryDirectory(prefix="counts-") as scratch:
        folder = Path(scratch)
        hotloop = [python, "-m", "hotloop"]
        own = read_own(run([*hotloop, "run", "--quiet", "--out", "session", str(SCRIPTS / script), *arguments], folder))
        report: dict[str, Any] = json.loads(run([*hotloop, "report", "session", "--json"], folder))
        agree = views_agree(folder / "session")
    # no iterations in the report: none was closed
    seen = report["counters"] | {"iterations": (report.get("iterations") or {}).get("closed", 0)}
    return [Count(number, own[number], int(seen.get(number, 0))) for number in NUMBERS], agree


def views_agree(session: Path) -> str:
    """Do terminal, JSON, HTML, charts, analyze, list, live line and `ab` say the same of it? "" or where they do not."""
    try:
        check_one_answer(read_session(session))
    except AssertionError as error:
        return f"{traceback.extract_tb(error.__traceback__)[-1].line}"
    return ""


def find_python(module: str, pythons: list[str]) -> str | None:
    """The first that has it."""
    finds = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    for python in pythons:
        if subprocess.run([python, "-c", finds], env=clean_env(), capture_output=True).returncode == 0:
            return python
    return None


def show_header() -> None:
    print(f"{'own count, ≠ what HotLoop says':<32}" + "".join(f"{number:>17}" for number in NUMBERS))


def add_rows(table: Table, counts: dict[str, list[Count]], failures: dict[str, str]) -> None:
    for number in NUMBERS:
        known = [count for row in counts.values() for count in row if count.number == number and count.own is not None]
        if known:
            exact = sum(count.exact for count in known)
            table.add(f"{number}: exact", exact, len(known), "", above=True, note=f"of {len(known)}")
    whole = sum(all(count.exact for count in row if count.own is not None) for row in counts.values())
    table.add("scripts with every number exact", whole, len(counts), "", above=True, note=f"of {len(counts)}")
    table.add("scripts without numbers", len(failures), 0, "", note="; ".join(f"{k}: {v}" for k, v in failures.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="scripts with one of these words in name or command")
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="the first that has what a script needs runs it")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    counts: dict[str, list[Count]] = {}
    views: dict[str, str] = {}
    failures: dict[str, str] = {}
    show_header()
    for case in CASES:
        if options.only and not any(word.lower() in f"{case.name} {case.command}".lower() for word in options.only):
            continue
        python = find_python(case.needs, options.python)
        if python is None:
            print(f"{case.name:<32}  left out: there is no {case.needs}", flush=True)
            continue
        try:
            counts[case.name], views[case.name] = count_case(case, python)
            print(f"{case.name:<32}" + "".join(f"{count.text:>17}" for count in counts[case.name]), flush=True)
        except (Failure, ValueError, KeyError) as failure:
            failures[case.name] = f"{type(failure).__name__}: {failure}"
            print(f"{case.name:<32}  {failures[case.name]}", flush=True)
    if not counts and not failures:
        print("nothing was counted")
        return CANNOT
    table = Table("HotLoop's counts against the scripts' own")
    add_rows(table, counts, failures)
    apart = "; ".join(f"{name}: {where}" for name, where in views.items() if where)
    agree = sum(not where for where in views.values())
    table.add("recorded sessions whose views all agree", agree, len(views), "", above=True, note=apart or f"of {len(views)}")
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
