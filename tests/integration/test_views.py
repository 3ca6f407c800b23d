"""What people read: the terminal report, the seed systems' blocks, live printing, lists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from hotloop.analyse.limits import Claim
from hotloop.cli.main import main
from hotloop.model.finding import Finding, Gain
from hotloop.present.terminal import report_text
from hotloop.run.progress import Progress, ProgressReader, status_text

LOOP = """
import time
from concurrent.futures import ThreadPoolExecutor
from hotloop import *

def rollout(i):
    for _ in range(5):
        with profile("env_step"): time.sleep(0.0005)

def train(iterations):
    with ThreadPoolExecutor(4) as pool:
        for _ in range(iterations):
            with profile("collect"): list(pool.map(rollout, range(4)))
            with profile("gradient_calculation"):
                sum(range(20_000))
                with profile("optimizer_step", track_memory=True): sum(range(20_000))
            count("env_steps", 20); count("episodes")
            step()
"""


@pytest.fixture
def done(run):
    return run(LOOP + 'start(name="views")\ntrain(12)\nstop()\n')


def percentages(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"(\d+\.\d) ?%", text)]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_terminal_report_fits_and_nothing_is_above_a_hundred_percent(done, width):
    report = done.report
    text = report_text(report, width)
    assert max(map(len, text.splitlines())) <= width
    assert all(0 <= value <= 100 for value in percentages(text))
    for word in ("collect", "env_step", "work", "waiting", "unattributed", "profiler", "THREADS", "losses none"):
        assert word in text
    text = " ".join(text.split())
    (sums,) = re.findall(
        r"work ([\d.]+) \+ . waiting ([\d.]+) \+ . unattributed ([\d.]+) \+ . profiler ([\d.]+) = 100.0 %", text
    )
    assert sum(map(float, sums)) == pytest.approx(100)


def test_views_are_printed_of_a_session(done, capsys):
    (path,) = (done.folder / "runs").iterdir()
    assert main(["report", str(path), "--view", "components"]) == 0
    components = capsys.readouterr().out
    assert "1. Collect" in components
    assert "- ≈ Env Step" in components
    assert "Total" in components.splitlines()[-1]
    assert "(100.0%)" in components.splitlines()[-1]
    assert main(["report", str(path), "--view", "episodes"]) == 0
    episodes = capsys.readouterr().out
    assert "PERFORMANCE SUMMARY (per episode)" in episodes
    assert "Optimizer Step: " in episodes
    assert "[inside gradient_calculation" in episodes, "nested time is said to be part of its parent's"
    assert "of thread time" in next(line for line in episodes.splitlines() if line.startswith("  Step: "))
    assert "Peak Memory Usage: " in episodes
    assert "Average CPU Usage: " in episodes
    assert main(["report", str(path), "--view", "rollout"]) == 0
    rollout = capsys.readouterr().out
    assert "Rollout Timing Profile (agent_step=240)" in rollout
    assert rollout.count("<-- BOTTLENECK") == 1
    assert all(value <= 100 for value in percentages(components + episodes))


def test_logs_are_written_where_asked_for(done, capsys, tmp_path):
    (path,) = (done.folder / "runs").iterdir()
    folder = tmp_path / "logs" / "profiling"
    assert main(["report", str(path), "--logs", str(folder)]) == 0
    assert main(["report", str(path), "--logs", str(folder)]) == 0
    raw, reports = (sorted((folder / kind).iterdir(), key=lambda p: len(p.name)) for kind in ("raw", "reports"))
    assert len(raw) == len(reports) == 2, "nothing is overwritten"
    assert re.fullmatch(r"views_\d{8}_\d{6}\.json", raw[0].name)
    assert re.fullmatch(r"views_\d{8}_\d{6}_summary\.txt", reports[0].name)
    assert json.loads(raw[0].read_text())["name"] == "views"
    assert "SYSTEM RESOURCE USAGE" in reports[0].read_text()


def test_training_prints_its_own_blocks_and_logs(run):
    done = run(
        LOOP
        + """
start(name="live", print_every=4, summary_every=100)
train(12)
p = get_profiler()
p.print_components(); p.print_episodes(); p.print_rollout(3)
raw, summary = p.save_logs("../evil", "logs")
print(raw, summary)
stop()
p.print_rollout()
"""
    )
    out = done.stdout
    assert out.count("Rollout Timing Profile (agent_step=80)") == 1
    assert out.count("Rollout Timing Profile (agent_step=160)") == 1
    assert out.count("(mean of 4)") == 3
    assert out.count("PROFILING SUMMARY") == 2, "after 100 and after 200 env steps"
    assert "Component Breakdown:" in out
    assert "PERFORMANCE SUMMARY (per episode)" in out
    assert "(mean of 3)" in out
    assert not (done.folder.parent / "evil").exists()
    assert [p.parent.name for p in sorted((done.folder / "logs").rglob("*_*.*"))] == ["raw", "reports"]
    assert done.report.quality.losses == {}
    balance = done.report.ledger.balances[0]
    assert balance.profiler_ns > 0, "what was printed is charged to the profiler"


def test_sessions_are_listed_side_by_side(done, capsys, monkeypatch):
    monkeypatch.chdir(done.folder)
    (done.folder / "runs" / "broken" / "shards").mkdir(parents=True)
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row.get("name") for row in rows} == {"views", None}
    (good,) = [row for row in rows if "name" in row]
    assert (good["state"], good["iterations"], good["largest"]) == ("ended", 12, "env_step")
    (bad,) = [row for row in rows if "problem" in row]
    assert "holds no recording" in bad["problem"]
    assert main(["list"]) == 0
    assert "unreadable" in capsys.readouterr().out
    assert main(["list", "nowhere"]) == 3


def test_report_files_are_written_and_never_replaced_unasked(done, capsys, tmp_path):
    (path,) = (done.folder / "runs").iterdir()
    text, page, chart = (tmp_path / name for name in ("report.txt", "report.html", "run.png"))
    arguments = ["report", str(path), "--text", str(text), "--html", str(page), "--charts", str(chart)]
    assert main(arguments) == 0
    assert "WHERE THE TIME WENT" in text.read_text()
    assert page.read_text().startswith("<!doctype html>")
    assert chart.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


def test_json_on_standard_output_is_nothing_but_json(done, capsys, tmp_path):
    (path,) = (done.folder / "runs").iterdir()
    files = [word for name in ("text", "html", "charts") for word in (f"--{name}", str(tmp_path / name))]
    assert main(["report", str(path), "--json", *files, "--logs", str(tmp_path / "logs")]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["name"] == "views"
    assert said.err.count("wrote ") == 5


def test_the_next_command_can_be_pasted_whatever_the_sessions_name(done, capsys, tmp_path, monkeypatch):
    (path,) = (done.folder / "runs").iterdir()
    shutil.copytree(path, tmp_path / "elsewhere" / "runs" / "a b\x1b[1m")
    monkeypatch.chdir(tmp_path / "elsewhere")
    for arguments in (["list"], ["report"]):
        assert main(arguments) == 0
        assert "next: hotloop report 'runs/a b\\x1b[1m'" in capsys.readouterr().out


def test_the_json_report_carries_balance_and_history(done, capsys):
    (path,) = (done.folder / "runs").iterdir()
    assert main(["report", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    rows = data["balance"]
    assert rows[0]["ns"] == data["tracks"][0]["lifetime_ns"]
    for i, row in enumerate(rows):
        below = [other["ns"] for other in rows if other["parent"] == i]
        assert not below or sum(below) == row["ns"]
        assert 0 <= row["share"] <= 1
    assert sum(data["owners"].values()) == pytest.approx(data["wall_s"])
    assert "your code" in data["owners"]
    assert data["iterations"]["percentiles_s"]["p50"] > 0
    assert data["iterations"]["warm_up"]["reason"]
    step = next(o for o in data["operations"] if o["name"] == "env_step")
    assert step["site"].endswith("train.py:8")


RUN = """
class Grid:
    def reset(self, seed=None):
        self.at = 0
        return [0.0], {}
    def step(self, action):
        self.at += 1
        self.flood()
        return [float(self.at)], 1.0, self.at >= 50, False, {}
    def flood(self):
        return sum(i * i for i in range(4000))

env = Grid()
env.reset()
for i in range(600):
    _, _, done, _, _ = env.step(1)
    if done:
        env.reset()
    sum(range(2000))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """An unchanged script under `hotloop run`."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "train.py").write_text(RUN)
    command = [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", "session", "train.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=900)
    return folder / "session"


def test_a_run_opens_with_its_phases_and_the_line_that_takes_the_time(ran, capsys):
    assert main(["report", str(ran), "--width", "100"]) == 0
    text = capsys.readouterr().out
    assert text.index("PHASES OF THE LOOP") < text.index("LINES ") < text.index("WHERE THE TIME WENT")
    assert "600 env steps" in text
    phase, limit = [line for line in text.splitlines() if line.startswith("collect ")]
    assert 0 < percentages(phase)[0] <= 100
    assert text.index("LIMITS ") < text.index(limit) and " × " in limit and "interpreting" in limit
    top = text[text.index("LINES ") :].splitlines()
    assert "train.py:11 Grid.flood" in top[1] and "collect/…/Grid.step" in top[1]
    assert "return sum(i * i for i in range(4000))" in top[2]
    assert "≈" in text and "lies between two measured calls" in " ".join(text.split())


def test_a_run_is_the_same_in_json_and_charts(ran, capsys, tmp_path):
    assert main(["report", str(ran), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    rest = data["tracks"][0]["unattributed_s"] + data["tracks"][0]["profiler_s"]
    assert sum(phase["total_s"] for phase in data["phases"]) + rest == pytest.approx(data["loop_s"])
    collect = next(phase for phase in data["phases"] if phase["phase"] == "collect")
    assert {part["name"] for part in collect["parts"]} >= {"env_step", "between calls"}
    assert sum(part["total_s"] for part in collect["parts"]) == pytest.approx(collect["direct_s"] + collect["inferred_s"])
    assert "sum(i * i" in data["lines"][0]["text"]
    assert main(["report", str(ran), "--charts", str(tmp_path / "run.png")]) == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    for view in ("components", "episodes", "rollout"):
        assert main(["report", str(ran), "--view", view]) == 0
    assert main(["analyze", "-i", str(ran)]) == 0
    assert "collect/env_step" in capsys.readouterr().out


def test_findings_are_looked_for_again_whenever_a_session_is_read(ran, capsys, tmp_path, monkeypatch):
    """A rule that is new finds something in an old session, and every view shows it; the file of its time is not asked."""
    copy = tmp_path / "session"
    shutil.copytree(ran, copy)
    (copy / "findings.json").write_text('{"version": 1, "findings": [{"cause": "of-its-time"}]}')
    gain = Gain(1.5, 2.0, 2.4)
    found = Finding(
        "env-step-hot", "flood is slow", "collect/env_step", "train.py", 11, "Grid.flood", 0.6, gain, (), "Cache it.", ""
    )
    monkeypatch.setattr("hotloop.analyse.diagnosis.find_claims", lambda *_: (Claim(found),))
    assert main(["report", str(copy)]) == 0
    text = capsys.readouterr().out
    assert "critical · env-step-hot" in text and "of-its-time" not in text
    assert main(["report", str(copy), "--json"]) == 0
    assert [row["action"] for row in json.loads(capsys.readouterr().out)["findings"]] == ["Cache it."]
    for option, name in (("--html", "page.html"), ("--text", "page.txt")):
        assert main(["report", str(copy), option, str(tmp_path / name)]) == 0
        assert "flood is slow" in (tmp_path / name).read_text()


def test_a_listed_session_is_read_once_for_each_version_of_the_rules(ran, capsys, tmp_path, monkeypatch):
    copy = tmp_path / "runs" / "session"
    shutil.copytree(ran, copy)

    def list_it():
        assert main(["list", str(copy.parent), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    rows = list_it()
    assert rows[0]["session"] == str(copy) and rows[0]["state"] == "ended"
    (copy / "shards").rename(copy / "moved")
    (copy / "shards").mkdir()
    assert list_it() == rows  # kept
    monkeypatch.setattr("hotloop.store.summaries.rules_version", lambda: "of another day")
    assert "problem" in list_it()[0]  # read again
    for text in ("", "[]", '{"rules": "of another day", "row": {"wall_s": [1]}}', '{"rules": "of another day", "row": 3}'):
        (copy / "summary.json").write_text(text)
        assert "problem" in list_it()[0]


def test_the_live_line_speaks_of_phases_where_they_are_known(ran, done):
    pid = json.loads((ran / "session.json").read_text())["pid"]
    progress = ProgressReader(ran, pid).read()
    names = [name for name, _ in progress.shares]
    assert names[0] == "collect" and "Grid.step" not in names
    assert 0.5 < sum(share for _, share in progress.shares) <= 1
    assert "collect" in status_text(3, progress)
    (api,) = (done.folder / "runs").iterdir()
    labels = ProgressReader(api, json.loads((api / "session.json").read_text())["pid"]).read()
    assert {name for name, _ in labels.shares} & {"gradient_calculation", "optimizer_step", "(waiting: lock)"}
    assert status_text(3, Progress(0, None, (), starting=True)) == "HotLoop 0:03 | starting up"
