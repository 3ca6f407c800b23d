from __future__ import annotations

import io
import json
import math
import os
import sys

import matplotlib as mpl
import matplotlib.image
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotloop.analyse.bottlenecks import find_bottlenecks
from hotloop.cli.main import main
from hotloop.errors import UnreadableError
from hotloop.model.listing import Entry, Listing
from hotloop.present.analysis import analysis_text
from hotloop.present.charts import draw_bottlenecks, name_text
from hotloop.present.detailed import detailed_data
from hotloop.store.foreign import read_report

BOTTLENECK_KEYS = {
    "name", "score", "time_percent", "avg_time_ms", "call_count", "memory_peak_mb", "gpu_memory_peak_mb", "levels", "category",
}  # fmt: skip


def operation(total, calls, memory=0.0, gpu=0.0):
    """A row as the original system writes it; its average memory can be negative."""
    return {
        "total_time": total, "call_count": calls, "avg_time": total / calls, "min_time": 0.5 * total / calls,
        "max_time": 2 * total / calls, "memory_peak_mb": memory, "memory_avg_mb": -0.25, "gpu_memory_peak_mb": gpu,
        "gpu_memory_avg_mb": 0.0,
    }  # fmt: skip


FOREIGN = {
    "env_rgb_observation_generation": operation(25.0, 2000),
    "env_rgb_rendering": operation(15.0, 2000, 12.0),
    "convlstm_forward_pass": operation(20.0, 2000, 150.0, 400.0),
    "recurrent_policy_forward": operation(10.0, 2000),
    "simulated_model_update": operation(30.0, 100, 120.0, 900.0),
    "training_total": operation(100.0, 1),
}


def report(operations, **more):
    return {
        "timestamp": "2025-07-01T10:00:00",
        "summary": {"total_operations": len(operations), "operations": operations, **more},
        "memory_snapshots": [],
    }


@pytest.fixture
def foreign(tmp_path):
    path = tmp_path / "profiling_report.json"
    path.write_text(json.dumps(report(FOREIGN)))
    return path


SCRIPT = """
    from hotloop import *
    start(name="run1")
    with profile("training_total"):
        for _ in range(12):
            with profile("env_step"):
                with profile("env_render", track_memory=True):
                    sum(range(2000))
            with profile("update"):
                sum(range(4000))
    get_profiler().save()
    stop()
"""


def analyse(capsys, *arguments):
    assert main(["analyze", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_report_of_the_original_system_is_analysed_by_its_own_sum(foreign, capsys):
    data = analyse(capsys, "-i", foreign)
    summary = data["summary"]
    assert set(data) == {"summary", "raw_data"}
    assert set(summary) >= {"total_operations", "total_time", "bottlenecks", "categories"}
    assert summary["total_operations"] == 6
    assert summary["total_time"] == 200.0
    assert data["raw_data"] == report(FOREIGN)
    rows = {row["name"]: row for row in summary["bottlenecks"]}
    assert all(set(row) >= BOTTLENECK_KEYS for row in rows.values())
    assert "training_total" not in rows
    update = rows["simulated_model_update"]
    assert update["time_percent"] == pytest.approx(15.0)
    assert update["score"] == pytest.approx(0.4 * 15 + 0.3 * 100 + 0.15 * 1.2 + 0.15 * 9)
    assert update["levels"] == ["SLOW", "MEMORY", "GPU MEMORY"]
    assert update["category"] == "Training"
    assert rows["convlstm_forward_pass"]["levels"] == ["MEMORY", "GPU MEMORY"]
    assert [row["score"] for row in summary["bottlenecks"]] == sorted((r["score"] for r in rows.values()), reverse=True)
    assert [row["name"] for row in summary["rare"]] == ["training_total"]
    assert sum(c["total_time"] for c in summary["categories"].values()) == pytest.approx(200.0)


def test_a_session_its_own_report_and_its_raw_data_tell_the_same(run, capsys):
    done = run(SCRIPT)
    (session,) = (done.folder / "runs").iterdir()
    ours = analyse(capsys, "-i", session)
    summary = ours["summary"]
    assert summary["time_base"] == "wall"
    assert all(row["time_percent"] <= 100 for row in (*summary["bottlenecks"], *summary["rare"]))
    shares = [c["time_percent"] for c in (*summary["categories"].values(), *summary["beside"].values())]
    assert math.fsum(shares) == pytest.approx(100, abs=1e-6)
    assert set(summary["beside"]) == {"waiting", "unattributed", "profiler"}
    assert {row["name"] for row in summary["bottlenecks"]} == {"env_step", "env_render", "update"}
    assert [row["name"] for row in summary["rare"]] == ["training_total"]

    raw = done.folder / "raw.json"
    raw.write_text(json.dumps(ours["raw_data"]))
    again = analyse(capsys, "-i", raw)["summary"]
    for kind in ("bottlenecks", "rare"):
        for row, other in zip(summary[kind], again[kind], strict=True):
            assert {k: row[k] for k in BOTTLENECK_KEYS} == {k: other[k] for k in BOTTLENECK_KEYS}
    assert again["categories"] == summary["categories"]
    assert again["beside"] == summary["beside"]
    assert again["recommendations"] == summary["recommendations"]

    saved = analyse(capsys, "-i", done.folder / "profiling_report.json")["summary"]  # taken a moment before stop()
    assert {r["name"]: r["call_count"] for r in saved["bottlenecks"]} == {
        r["name"]: r["call_count"] for r in summary["bottlenecks"]
    }
    assert saved["time_base"] == "wall"
    assert math.fsum(c["time_percent"] for c in (*saved["categories"].values(), *saved["beside"].values())) <= 100 + 1e-6


def test_what_to_change_is_what_the_findings_of_the_report_say(tmp_path, capsys):
    finding = {"cause": "render-in-loop", "title": "drawing takes 60 %", "action": "draw at the size the network sees"}
    hostile = [
        {"cause": 3},
        "x",
        {"cause": "a", "title": None, "action": ""},
        {"cause": "b", "title": "\x1b[31m", "action": "c"},
    ]
    path = tmp_path / "profiling_report.json"
    ours = {"wall_time": 200.0, "findings": [finding, *hostile]}
    operations = {name: {**row, "share": 0.2, "self_time": 1.0} for name, row in FOREIGN.items()}
    path.write_text(json.dumps(report(operations, **ours)))
    assert main(["analyze", "-i", str(path)]) == 0
    text = capsys.readouterr().out
    assert " 1. render-in-loop: drawing takes 60 %; draw at the size the network sees" in text
    assert text.count(" 2. ") >= 1
    assert "\x1b" not in text
    path.write_text(json.dumps(report(FOREIGN, findings=[finding])))  # without a wall time it is not ours
    assert main(["analyze", "-i", str(path)]) == 0
    assert "render-in-loop" not in capsys.readouterr().out


def test_threads_never_push_a_share_above_the_wall_time(run, capsys):
    done = run("""
        import threading, time
        from concurrent.futures import ThreadPoolExecutor
        from hotloop import *
        together = threading.Barrier(4)
        @profile_function("env_step")
        def env_step(_):
            together.wait()  # four are open at once, however busy the machine is
            time.sleep(0.01)
        start(name="run1")
        with ThreadPoolExecutor(4) as pool:
            for _ in range(12):
                with profile("collect"):
                    list(pool.map(env_step, range(8)))
        stop()
    """)
    (session,) = (done.folder / "runs").iterdir()
    summary = analyse(capsys, "-i", session)["summary"]
    rows = {row["name"]: row for row in summary["bottlenecks"]}
    assert rows["env_step"]["total_time"] > summary["wall_time"]  # thread-time
    assert all(row["time_percent"] <= 100 and row["own_percent"] <= 100 for row in rows.values())
    shares = [c["time_percent"] for c in (*summary["categories"].values(), *summary["beside"].values())]
    assert math.fsum(shares) == pytest.approx(100, abs=1e-6)
    assert summary["recommendations"][0]["name"] == "env_step"


def test_the_raw_data_of_a_session_has_the_keys_of_seed_000(run_native, capsys):
    done = run_native(SCRIPT)
    (session,) = (done.folder / "runs").iterdir()
    raw = analyse(capsys, "-i", session / "session.json")["raw_data"]
    assert set(raw) == {"timestamp", "summary", "memory_snapshots"}
    assert raw["summary"]["total_operations"] == 4
    saved = json.loads((done.folder / "profiling_report.json").read_text())
    assert set(raw["summary"]) >= set(saved["summary"])
    assert set(raw["summary"]["operations"]["env_step"]) >= set(saved["summary"]["operations"]["env_step"])


def test_the_text_goes_to_standard_output_and_names_the_next_command(foreign, capsys):
    assert main(["analyze", "-i", str(foreign)]) == 0
    text = capsys.readouterr().out
    assert "TOP 10 BOTTLENECKS:" in text
    assert max(map(len, text.splitlines()[:-1])) <= 80
    assert "(1 operation with fewer than 10 calls)" in text
    assert "nested operations count more than once" in " ".join(text.split())
    assert text.splitlines()[-1] == f"next: hotloop analyze -i {foreign} --charts performance.png"
    assert " 1. simulated_model_update  [Training]  SLOW, MEMORY, GPU MEMORY\n" in text
    assert "15.0% of the summed time, 300.00 ms a call, peak 120 MB, GPU peak 900 MB." in text


def test_the_default_input_is_the_report_in_this_folder(foreign, capsys, monkeypatch):
    monkeypatch.chdir(foreign.parent)
    assert main(["analyze"]) == 0
    assert "simulated_model_update" in capsys.readouterr().out


def test_every_file_is_written_and_named_and_none_replaced_unasked(foreign, capsys):
    targets = [foreign.parent / name for name in ("analysis.txt", "performance.png", "detailed.json")]
    arguments = ["analyze", "-i", str(foreign), "-o", str(targets[0]), "-c", str(targets[1]), "-d", str(targets[2])]
    assert main(arguments) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrote")] == [
        f"wrote {t}" for t in targets
    ]
    assert "TOP 10 BOTTLENECKS:" in targets[0].read_text()
    assert targets[1].read_bytes().startswith(b"\x89PNG")
    assert json.loads(targets[2].read_text())["raw_data"]["timestamp"] == "2025-07-01T10:00:00"
    targets[0].write_text("mine")
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"hotloop: {targets[0]} exists; give another name, or --force to replace it\n"
    assert targets[0].read_text() == "mine"
    assert main([*arguments, "--force"]) == 0
    assert "TOP 10" in targets[0].read_text()
    assert sorted(os.listdir(foreign.parent)) == ["analysis.txt", "detailed.json", "performance.png", "profiling_report.json"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "profiling_report.json", "--force"], "is the input"),
        (["-o", "a.txt", "-d", "./a.txt"], "different files"),
        (["-c", "charts.jpg"], "PNG"),
        (["-o", "nowhere/a.txt"], "is not a directory"),
        (["-o", "."], "is a directory"),
        (["--category", "Search"], "NAME=PATTERN"),
        (["--category", "=x*"], "NAME=PATTERN"),
        (["--min-calls", "-1"], "--min-calls"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(foreign, capsys, monkeypatch, arguments, says):
    monkeypatch.chdir(foreign.parent)
    assert main(["analyze", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert os.listdir(foreign.parent) == [foreign.name]


def test_the_users_categories_win(foreign, capsys):
    found = analyse(capsys, "-i", foreign, "--category", "Board=env_rgb*", "--category", "Training=convlstm*")["summary"]
    assert set(found["categories"]) == {"Board", "Policy", "Training"}
    assert found["categories"]["Board"]["operations"] == 2


def test_min_calls_decides_who_is_ranked_and_no_time_is_lost(foreign, capsys):
    few, all_of_them = (analyse(capsys, "-i", foreign, "--min-calls", n)["summary"] for n in (1000, 0))
    assert len(few["bottlenecks"]) == 4
    assert len(all_of_them["bottlenecks"]) == 6
    assert few["total_time"] == all_of_them["total_time"]
    assert few["categories"] == all_of_them["categories"]
    assert {r["name"] for r in (*few["bottlenecks"], *few["rare"])} == set(FOREIGN)


# ---- input nobody vouches for ----


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1, 2]", "no summary.operations"),
        ('{"summary": []}', "no summary.operations"),
        ('{"summary": {"operations": [1]}}', "no summary.operations"),
        ('{"summary": {"operations": {"a": {"total_time": NaN, "call_count": 1}}}}', "not valid JSON"),
        ('{"summary": {"operations": {"a": {"total_time": ' + "9" * 5000 + "}}}}", "not valid JSON"),
        ('{"summary": {"operations": {}}, "x": ' + "[" * 60 + "]" * 60 + "}", "deeper than"),
        ("[" * 100_000, "not valid JSON"),
        ('{"summary": {"operations": {}}, "x": [' + "[]," * 1_000_000 + "1]}", "more than 1,000,000 values"),
        ("\x00\x01\xff" * 100, "not valid JSON"),
    ],
)
def test_a_file_that_is_no_report_is_one_sentence_and_exit_code_3(tmp_path, capsys, content, says):
    path = tmp_path / "profiling_report.json"
    path.write_bytes(content.encode("latin-1"))
    assert main(["analyze", "-i", str(path)]) == 3
    error = capsys.readouterr().err
    assert says in error
    assert "give a session directory" in error
    assert error.count("\n") == 1


def test_what_is_not_there_or_too_large_or_no_file_is_one_sentence(tmp_path, capsys):
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, says in (
        (tmp_path / "none.json", "does not exist"),
        (large, "larger than"),
        (pipe, "not a regular file"),
        (tmp_path, "holds no"),
    ):
        assert main(["analyze", "-i", str(path)]) == 3
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"total_time": "12"}, "total_time is not a number"),
        ({"total_time": -1.0}, "total_time is negative"),
        ({"total_time": 1e300}, "total_time is absurdly large"),
        ({"total_time": 10**400}, "total_time is absurdly large"),
        ({"total_time": None}, "total_time is not a number"),
        ({"total_time": True}, "total_time is not a number"),
        ({"call_count": 2.5}, "call_count is not a whole number"),
        ({"call_count": -3}, "call_count is negative"),
        ({"avg_time": []}, "avg_time is not a number"),
    ],
)
def test_an_operation_that_makes_no_sense_is_left_out_and_said_so(tmp_path, capsys, change, says):
    path = tmp_path / "profiling_report.json"
    path.write_text(json.dumps(report({"good": operation(1.0, 20), "bad": {**operation(1.0, 20), **change}})))
    summary = analyse(capsys, "-i", path)["summary"]
    assert [row["name"] for row in summary["bottlenecks"]] == ["good"]
    assert summary["problems"] == [f"operation 'bad' is left out: {says}"]
    assert main(["analyze", "-i", str(path)]) == 0
    assert f"note: operation 'bad' is left out: {says}" in capsys.readouterr().out


def test_missing_keys_and_bad_memory_cost_no_more_than_they_must(tmp_path, capsys):
    path = tmp_path / "profiling_report.json"
    rows = {
        "a": {"total_time": 4.0, "call_count": 20},
        "b": {**operation(1.0, 20), "memory_peak_mb": -5, "gpu_memory_peak_mb": "much"},
        "c": {"call_count": 20},
        "d": 7,
    }
    path.write_text(json.dumps(report(rows)).replace("4.0", '4.0, "other": 1e999'))
    data = analyse(capsys, "-i", path)
    found = {row["name"]: row for row in data["summary"]["bottlenecks"]}
    assert set(found) == {"a", "b"}
    assert found["a"]["avg_time_ms"] == 200.0
    assert found["b"]["memory_peak_mb"] == found["b"]["gpu_memory_peak_mb"] == 0.0
    assert len(data["summary"]["problems"]) == 4
    assert data["raw_data"]["summary"]["operations"]["a"]["other"] is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = (*operation(1.0, 1), "share", "self_time", "wall_self_time", "wall_waiting_time", "wall_outside_time", "memory_method")
SUMMARY_KEYS = ("wall_time", "coverage", "quality", "waiting_time", "unattributed_time", "profiler_time")
SENSIBLE = st.floats(0, 100) | st.integers(0, 100)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(max_size=12), JSON | st.dictionaries(st.sampled_from(KEYS), JSON | SENSIBLE, min_size=8), max_size=6
    ),
    st.dictionaries(st.sampled_from(SUMMARY_KEYS), JSON | SENSIBLE, max_size=6),
)
def test_any_json_in_the_shape_of_a_report_is_analysed_or_refused(tmp_path, operations, more):
    path = tmp_path / "profiling_report.json"
    path.write_text(json.dumps(report(operations, **more)))
    try:
        listing, raw = read_report(path)
    except UnreadableError as error:
        assert "\n" not in str(error)
        return
    analysis = find_bottlenecks(listing)
    assert all(0 <= b.time_percent <= 100 for b in (*analysis.bottlenecks, *analysis.rare))
    assert sum(c.percent for c in analysis.categories) <= 100 + 1e-6
    json.dumps(detailed_data(analysis, raw), allow_nan=False)
    assert all(c.isprintable() or c == "\n" for c in analysis_text(analysis))


# ---- charts ----


def panels(png):
    """The four quarters of the image, each as its share of pixels that are not white."""
    image = matplotlib.image.imread(io.BytesIO(png))
    assert image.shape[:2] == (1100, 1600)
    ink = np.any(image[..., :3] < 0.95, axis=-1)
    return [float(half.mean()) for rows in np.split(ink, 2) for half in np.split(rows, 2, axis=1)]


def draw(*entries, wall_s=None):
    return draw_bottlenecks(find_bottlenecks(Listing("x", entries, wall_s=wall_s)))


def test_the_charts_are_four_panels_with_something_in_each(foreign):
    listing, _ = read_report(foreign)
    assert all(share > 0.02 for share in panels(draw_bottlenecks(find_bottlenecks(listing))))


def test_charts_without_operations_or_memory_say_so():
    empty = panels(draw())
    assert all(0.0005 < share < 0.02 for share in empty)  # a title and a sentence
    *others, memory = panels(draw(Entry("env_step", 20, 1.0, 0.05)))
    assert memory < 0.02
    assert all(share > 0.02 for share in others)


def test_hostile_and_long_names_are_drawn_as_text_without_a_warning(capfd, recwarn):
    names = ("$\\frac{1}{0}$", "模型前向传播", "🎮" * 50, "_hidden", "a\nb\x1b[31m", "long_name_" * 5000, "\ud800", "", "{}%s")
    entries = [Entry(name, 20, 1.0, 10.0 ** -(i + 1), memory_peak_mb=10.0**i) for i, name in enumerate(names)]
    assert all(share > 0.02 for share in panels(draw(*entries)))
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


def test_a_name_keeps_its_beginning_and_its_end():
    assert name_text("env_rgb_observation_generation_of_worker_12", 21) == "env_rgb_ob…_worker_12"
    assert name_text("a\x1bb") == "a\\x1bb"
    assert "\U0001f3ae" not in name_text("\U0001f3ae game")


def test_without_matplotlib_charts_are_refused_in_one_sentence(foreign, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["analyze", "-i", str(foreign), "-c", str(foreign.parent / "x.png")]) == 2
    error = capsys.readouterr().err
    assert "pip install matplotlib" in error
    assert error.count("\n") == 1
    assert os.listdir(foreign.parent) == [foreign.name]


def test_drawing_leaves_matplotlib_as_it_was(foreign):
    before = dict(mpl.rcParams)
    listing, _ = read_report(foreign)
    draw_bottlenecks(find_bottlenecks(listing))
    assert dict(mpl.rcParams) == before
