"""The names users import, run as users run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

import hotloop


def test_the_public_names_are_exactly_these():
    names = {"profile", "profile_function", "get_profiler", "get_global_profiler", "step", "count", "start", "stop", "Profiler"}
    assert set(hotloop.__all__) == names
    assert hotloop.get_global_profiler() is hotloop.get_profiler()
    assert hotloop.Session.__name__ == "Session" and hotloop.load.__name__ == "load"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hotloop.nonsense  # noqa: B018


def test_importing_loads_no_third_party_module(run):
    done = run("""
        import sys
        before = set(sys.modules)
        import hotloop
        from hotloop import profile
        hotloop.start(out="runs")
        with profile("x"): pass
        hotloop.step(); hotloop.get_profiler().summary(); hotloop.stop()
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(new - set(sys.stdlib_module_names) - {"hotloop"}))
    """)
    assert done.stdout == "[]\n"


def test_off_until_enabled(run):
    done = run("""
        from hotloop import profile, profile_function, step, count, get_profiler
        @profile_function
        def f(): return 5
        with profile("x"): assert f() == 5
        step(); count("env_steps")
        assert not get_profiler().enabled
        assert get_profiler().summary()["operations"] == {}
        get_profiler().print_summary()
        get_profiler().disable(); get_profiler().reset()
        import hotloop; assert hotloop.stop() is None
    """)
    assert "recorded nothing" in done.stdout
    assert not (done.folder / "runs").exists()


def test_start_creates_a_session_and_stop_answers_it(run):
    done = run("""
        from hotloop import *
        a = start(name="run1", out="runs")
        assert a.is_dir() and a.parent.name == "runs" and a.name.startswith("run1-"), a
        with profile("env_step"): pass
        b = stop()
        assert a == b and stop() is None
        c = start(name="run1", out="runs"); stop()
        assert c != a and c.is_dir()
    """)
    assert len(list((done.folder / "runs").iterdir())) == 2


def test_a_second_start_warns_once_and_does_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = hotloop.start(out="runs")
    try:
        with pytest.warns(hotloop.errors.HotloopWarning, match="records already"):
            assert hotloop.start("other") == first
        assert hotloop.start("third") == first  # no second warning, or this would raise
    finally:
        hotloop.stop()
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_where_warnings_are_errors_a_second_start_still_does_not_raise(run):
    done = run("import hotloop; hotloop.start(); hotloop.start(); hotloop.stop()", check=False)
    assert done.returncode == 0
    assert "records already" in done.stderr


def test_hotloop_1_in_the_environment_records_from_the_start(run):
    done = run(
        """
        from hotloop import profile
        with profile("env_step"): pass
    """,
        env={"HOTLOOP": "1"},
    )
    assert done.operation("env_step").calls == 1
    assert done.session.name == "train"
    assert done.session.processes[0].state == "ended"


def test_enable_disable_reset(run):
    done = run("""
        from hotloop import get_profiler, profile
        p = get_profiler()
        p.enable()
        assert p.enabled
        for _ in range(3):
            with p.profile("a"): pass
        p.disable()
        assert not p.enabled
        with p.profile("a"): pass
        p.enable()
        with p.profile("a"): pass
        assert p.summary()["operations"]["a"]["call_count"] == 4
        p.reset()
        with p.profile("b"): pass
        assert list(p.summary()["operations"]) == ["b"]
        p.enable()   # already: nothing happens
    """)
    assert [o.name for o in done.report.operations if o.calls and o.kind == 0] == ["b"]
    assert done.session.shards[0].epoch == 2


def test_the_summary_outlives_the_session(run):
    run("""
        from hotloop import *
        start()
        with profile("x"): pass
        stop()
        assert get_profiler().summary()["operations"]["x"]["call_count"] == 1
    """)


def test_save_writes_the_report_of_seed_000(run):
    done = run("""
        from hotloop import *
        start()
        for _ in range(4):
            with profile("env_rgb_rendering", track_memory=True):
                data = bytearray(30_000_000); del data
        count("env_steps", 10); step()
        assert get_profiler().save("profiling_report.json").exists()
    """)
    report = json.loads((done.folder / "profiling_report.json").read_text())
    assert set(report) >= {"timestamp", "summary", "memory_snapshots"}
    assert report["summary"]["total_operations"] == 1
    row = report["summary"]["operations"]["env_rgb_rendering"]
    assert set(row) >= {
        "total_time", "call_count", "avg_time", "min_time", "max_time", "memory_peak_mb", "memory_avg_mb",
        "gpu_memory_peak_mb", "gpu_memory_avg_mb",
    }  # fmt: skip
    assert row["call_count"] == 4
    assert 27 < row["memory_peak_mb"] < 40
    assert row["avg_time"] == pytest.approx(row["total_time"] / 4)
    assert row["min_time"] <= row["avg_time"] <= row["max_time"]
    assert len(report["memory_snapshots"]) == 4
    assert all(s["operation"] == "env_rgb_rendering" and s["memory_peak_mb"] > 27 for s in report["memory_snapshots"])


def test_a_report_that_cannot_be_written_warns_and_does_not_raise(run):
    done = run(
        """
        from hotloop import *
        start()
        with profile("x"): pass
        assert get_profiler().save("/nonexistent/report.json") is None
    """,
        check=False,
    )
    assert done.returncode == 0
    assert "cannot write /nonexistent/report.json" in done.stderr


def test_the_printed_summary_has_seed_000s_columns_and_fits_the_terminal(run):
    done = run(
        """
        from hotloop import *
        start()
        for name in ("env_rgb_observation_generation", "convlstm_forward_pass", "bad\\x1b[31m\\u202ename"):
            with profile(name): pass
        count("env_steps", 100); step()
        for width in (80, 120, 200):
            print(f"<{width}>"); get_profiler().print_summary(width=width)
    """,
        env={"PYTHONIOENCODING": "utf-8"},
    )
    for column in ("Operation", "Calls", "Total(s)", "Avg(s)", "Min(s)", "Max(s)", "Mem Peak(MB)", "GPU Peak(MB)"):
        assert column in done.stdout
    for column in ("Wall%", "Busy(s)", "Union(s)", "Conc", "p95(s)", "SPS", "coverage", "own cost", "losses none"):
        assert column in done.stdout
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "bad\\x1b[31m\\u202ename" in done.stdout
    narrow, middle = done.stdout.partition("<80>")[2].partition("<200>")[0].split("<120>")
    assert max(map(len, narrow.splitlines())) <= 80
    assert max(map(len, middle.splitlines())) <= 120


def test_decorators_on_every_kind_of_function(run):
    done = run("""
        import asyncio, pickle, inspect, copy
        from hotloop import *
        start()

        @profile_function
        def plain(a, *, b=2):
            "doc"
            return a + b
        assert plain(1, b=3) == 4 and plain.__name__ == "plain" and plain.__doc__ == "doc"
        assert list(inspect.signature(plain).parameters) == ["a", "b"]
        assert pickle.loads(pickle.dumps(plain)) is plain and copy.deepcopy(plain) is plain

        @profile("as decorator")
        def other(): return 7
        assert other() == 7

        class Env:
            @profile_function("method")
            def step(self, x): return (self, x)
            @profile_function
            @staticmethod
            def s(x): return x
            @profile_function
            @classmethod
            def c(cls, x): return (cls, x)
        e = Env()
        assert e.step(3) == (e, 3) and Env.step(e, 4) == (e, 4) and e.s(1) == 1 and Env.c(2) == (Env, 2)
        assert list(map(e.step, [1])) == [(e, 1)]

        @profile_function("coro")
        async def coro(x):
            await asyncio.sleep(0); return x * 2
        assert inspect.iscoroutinefunction(coro) and asyncio.run(coro(4)) == 8

        @profile_function("gen")
        def gen(n):
            got = []
            try:
                for i in range(n):
                    try:
                        got.append((yield i))
                    except KeyError:
                        got.append("key")
            finally:
                got.append("closed")
            return got
        assert inspect.isgeneratorfunction(gen)
        g = gen(3); assert next(g) == 0 and g.send("a") == 1 and g.throw(KeyError("x")) == 2
        try: next(g)
        except StopIteration as stop_: assert stop_.value == ["a", "key", None, "closed"], stop_.value
        g = gen(5); next(g); g.close()
        def outer():
            return (yield from gen(2))
        assert list(outer()) == [0, 1]

        @profile_function("agen")
        async def agen(n):
            for i in range(n):
                await asyncio.sleep(0); yield i
        async def consume():
            return [x async for x in agen(3)]
        assert asyncio.run(consume()) == [0, 1, 2]

        @profile_function("raises")
        def raises(): raise ValueError("mine")
        try: raises()
        except ValueError as error: assert str(error) == "mine"

        try: profile_function("x")(5)
        except TypeError as error: assert "decorates functions" in str(error)
        stop()
    """)
    calls = {o.name: o.calls for o in done.report.operations if o.kind == 0 and o.calls}
    assert calls == {
        "plain": 1, "as decorator": 1, "method": 3, "Env.s": 1, "Env.c": 1, "coro": 1, "gen": 3, "agen": 1, "raises": 1,
    }  # fmt: skip
    losses = done.report.quality.losses
    assert losses == {}


def test_decorated_before_start_records_after(run):
    done = run("""
        from hotloop import *
        @profile_function("late")
        def f(): pass
        f(); start(); f(); f(); stop(); f()
    """)
    assert done.operation("late").calls == 2


def test_a_name_never_leads_out_of_the_folder(run):
    done = run("""
        import hotloop
        path = hotloop.start(name="../../evil/../name", out="runs"); hotloop.stop()
        assert path.parent.name == "runs", path
    """)
    assert [p.name for p in done.folder.iterdir() if p.is_dir()] == ["runs"]


def test_session_json_says_what_ran_and_hides_secrets(run):
    done = run(
        "import hotloop; hotloop.start(); hotloop.stop()",
        "--api-key",
        "hunter2",
        "--wandb-token=abc",
        "--lr",
        "1",
        env={"SECRET_THING": "hunter3"},
    )
    text = next((done.folder / "runs").iterdir()).joinpath("session.json").read_text()
    meta = json.loads(text)
    assert meta["ended"] is True
    assert meta["command"][-5:] == ["--api-key", "***", "--wandb-token=***", "--lr", "1"]
    assert "hunter" not in text
    assert meta["host"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert meta["own_cost_ns"]["inside"] > 0
    assert meta["recorder"]["native"] is (meta["recorder"]["why_not_native"] == "")


def test_hooks_are_gone_after_stop(run):
    run("""
        import asyncio.events, os, resource, sys, threading, time
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
        import hotloop
        def state():
            return (asyncio.events.Handle._run, ThreadPoolExecutor.submit, ProcessPoolExecutor.submit, time.sleep,
                    threading.Condition.wait, resource.getrusage, list(sys.meta_path), dict(os.environ))
        before, threads = state(), threading.active_count()
        hotloop.start()
        assert asyncio.events.Handle._run is not before[0] and ThreadPoolExecutor.submit is not before[1]
        with hotloop.profile("x", track_memory=True): time.sleep(0.001)
        assert threading.active_count() == threads
        hotloop.stop()
        assert state() == before
    """)


@pytest.mark.parametrize("options", ["", "system=True"])
def test_ctrl_c_ends_a_recorded_script_as_it_would_without_us(tmp_path, run, options):
    script = tmp_path / "train.py"
    script.write_text(
        f"import time, hotloop\nhotloop.start({options})\nwith hotloop.profile('x', track_memory=True): pass\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    environment = os.environ | {"HOTLOOP_RECORDER": run.recorder}
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_working_directory_that_was_removed_stops_nobody(run):
    done = run("""
        import os, hotloop
        home = os.getcwd()
        os.mkdir("gone"); os.chdir("gone"); os.rmdir(os.path.join(home, "gone"))
        hotloop.start(out=os.path.join(home, "runs"))
        with hotloop.profile("a"): pass
        hotloop.stop()
    """)
    assert done.operation("a").calls == 1
