"""A1, A11: a finished span survives the death of its process; nothing is torn; the session opens with no repair step."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.errors import UnreadableError
from hotloop.model import shard as m
from hotloop.store.reader import DIED, read_session
from hotloop.store.shard import decode

VICTIMS = Path(__file__).with_name("victims.py")


def env_of(recorder: str = "native") -> dict[str, str]:
    return os.environ | {"HOTLOOP_RECORDER": recorder}


def check_shard(shard: m.Shard, done: list[int]) -> None:
    """Every finished span is there, none is counted twice, and the sums close to the nanosecond."""
    assert shard.problems == ()
    assert not shard.ended
    by_track: dict[int, dict[str, m.Node]] = {}
    for node in shard.nodes:
        by_track.setdefault(node.track, {})[shard.label_of(node.path).name] = node
        assert sum(node.histogram) == node.count
        assert node.count == 0 or node.min_ns <= node.total_ns / node.count <= node.max_ns
    spinners = {t.name: t for t in shard.tracks if t.name.startswith("spinner")}
    for index, finished in enumerate(done):
        name = f"spinner-{chr(97 + index // 26)}{chr(97 + index % 26)}"
        if name not in spinners:
            assert finished == 0
            continue
        track = spinners[name]
        nodes = by_track[track.id]
        a, b = nodes.get("a"), nodes.get("b")
        if a is None or b is None:
            assert finished == 0
            continue
        assert finished <= a.count <= finished + 1
        assert a.count <= b.count <= a.count + 1
        own = nodes["(profiler)"].self_ns
        for node, inside in ((a, a.self_ns + b.self_ns), (b, b.self_ns)):
            still_open = [s for s in shard.open_spans if s.track == track.id and s.path == node.path]
            recorded = node.total_ns + sum(track.end_ns - s.start_ns for s in still_open)
            # A closed span's time is its own; of an open one, our own work is not told apart yet.
            assert 0 <= recorded - inside <= (own if still_open else 0)
        assert track.entered == a.count + b.count + track.depth
        assert len([s for s in shard.open_spans if s.track == track.id]) == track.depth
    assert shard.attempted == shard.recorded + shard.dropped + shard.open_count


def kill_many(tmp_path: Path, method: str, threads: int, kills: int, seed: int, recorder: str = "native") -> None:
    rng = random.Random(seed)
    nursery = subprocess.Popen(
        [sys.executable, str(VICTIMS), "nursery", method, str(threads), str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env_of(recorder),
    )  # fmt: skip
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    shards = None
    checked = finished = 0
    try:
        for number in range(kills):
            counters = tmp_path / f"counters-{number % 8}"
            counters.unlink(missing_ok=True)
            nursery.stdin.write(f"{counters}\n")
            nursery.stdin.flush()
            pid = int(nursery.stdout.readline())
            deadline = time.monotonic() + 60
            while not (
                counters.exists()
                and counters.stat().st_size
                and counters.read_bytes()[8 * threads : 8 * threads + 8] != bytes(8)
            ):
                assert time.monotonic() < deadline
                time.sleep(0.0005)
            # Most are killed at work, whatever the machine's load; one in ten as early as it comes.
            at_work = rng.random() < 0.9
            while at_work and not any(counters.read_bytes()[: 8 * threads]) and time.monotonic() < deadline:
                time.sleep(0.0005)
            time.sleep(rng.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
            assert nursery.stdout.readline().strip() == str(-signal.SIGKILL)
            if shards is None:
                (session,) = (tmp_path / "runs").iterdir()
                shards = session / "shards"
            done = list(struct.unpack_from(f"<{threads}Q", counters.read_bytes()))
            mine = list(shards.glob(f"{pid}-*"))
            if not mine:
                assert sum(done) == 0
                continue
            try:
                shard = decode(mine[0].read_bytes())
            except UnreadableError as error:  # killed while it made its shard
                assert "died before its first span" in str(error)
                assert sum(done) == 0
                mine[0].unlink()  # process ids come round again
                continue
            check_shard(shard, done)
            checked += 1
            finished += sum(done)
            mine[0].unlink()
        nursery.stdin.close()
        assert nursery.wait(60) == 0
    finally:
        nursery.kill()
        nursery.stdout.close()
    assert checked >= kills * 0.6
    assert finished > 0
    (session,) = (tmp_path / "runs").iterdir()
    assert read_session(session).processes[0].state == "ended"


@pytest.mark.parametrize("threads", [1, 8, 64])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_killed_process_loses_no_finished_span(tmp_path, method, threads):
    kill_many(tmp_path, method, threads, kills=12 if method == "fork" else 5, seed=threads)


@pytest.mark.parametrize("threads", [1, 8])
def test_the_python_recorder_survives_being_killed_too(tmp_path, threads):
    kill_many(tmp_path, "fork", threads, kills=10, seed=threads, recorder="python")


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("threads", [1, 8, 64])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_thousand_kills_lose_no_finished_span(tmp_path, method, threads):
    kill_many(tmp_path, method, threads, kills=1000, seed=1000 + threads)


@pytest.mark.parametrize("recorder", ["native", "python"])
@pytest.mark.parametrize("how", ["os._exit", "segv", "abort", "sigkill", "sigterm", "exception"])
def test_every_way_to_die_leaves_a_session(tmp_path, how, recorder):
    done = subprocess.run(
        [sys.executable, str(VICTIMS), "die", how, str(tmp_path)], env=env_of(recorder), capture_output=True, timeout=60
    )
    assert done.returncode != 0
    (path,) = (tmp_path / "runs").iterdir()
    session = read_session(path)
    report = diagnose(session)
    calls = {o.name: (o.calls, o.open) for o in report.operations if o.kind == m.USER}
    if how == "exception":  # an exception unwinds: the spans are closed and the session is too
        assert calls == {"finished": (1000, 0), "open at death": (1, 0), "inner": (1, 0)}
        assert session.processes[0].state == "ended"
    else:
        assert calls == {"finished": (1000, 0), "open at death": (0, 1), "inner": (0, 1)}
        assert session.processes[0].state == DIED
    assert session.problems == ()
    assert report.ledger.balances[0].lifetime_ns == session.shards[0].tracks[0].lifetime_ns


def memory_cgroup() -> Path | None:
    """A memory cgroup of our own to be killed in, where we may make one."""
    for base, limit in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
        group = base / f"hotloop-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(200 << 20))
            return group
        except OSError:
            if group.exists():
                group.rmdir()
    return None


def remove(group: Path) -> None:
    """A group may be removed a moment after its last process was waited for."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return group.rmdir()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_out_of_memory_killer_leaves_a_session(tmp_path):
    group = memory_cgroup()
    try:
        victim = subprocess.Popen(
            [sys.executable, str(VICTIMS), "die", "oom", str(tmp_path)], env=env_of(),
            preexec_fn=lambda: group and (group / "cgroup.procs").write_text(str(os.getpid())),
        )  # fmt: skip
        if group is None:  # then we do what the kernel would
            while psutil.Process(victim.pid).memory_info().rss < 200 << 20:
                time.sleep(0.001)
            victim.kill()
        assert victim.wait(120) == -signal.SIGKILL
        (path,) = (tmp_path / "runs").iterdir()
        report = diagnose(read_session(path))
        assert next(o for o in report.operations if o.name == "finished").calls == 1000
        assert next(o for o in report.operations if o.name == "open at death").open == 1
    finally:
        victim.kill()
        victim.wait()
        if group is not None:
            remove(group)


@pytest.mark.parametrize("workers", [16, pytest.param(64, marks=pytest.mark.full)])
def test_of_many_environment_processes_the_killed_ones_are_flagged_and_the_rest_intact(tmp_path, workers):
    parent = subprocess.Popen(
        [sys.executable, str(VICTIMS), "many", str(tmp_path), str(workers)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env_of(),
    )  # fmt: skip
    assert parent.stdin is not None
    assert parent.stdout is not None
    pids = [int(x) for x in parent.stdout.readline().split()]
    time.sleep(1.5)
    killed = random.Random(5).sample(pids, max(1, workers // 10))
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    (path,) = (tmp_path / "runs").iterdir()
    live = read_session(path)
    assert {p.state for p in live.processes if p.pid in pids and p.pid not in killed} <= {"running"}
    parent.stdin.write("go\n")
    parent.stdin.close()
    assert parent.wait(120) == 0
    parent.stdout.close()
    session = read_session(path)
    states = {p.pid: p.state for p in session.processes}
    assert len(states) == workers + 1
    assert {pid for pid, state in states.items() if state == DIED} == set(killed)
    assert {pid for pid, state in states.items() if state == "ended"} == set(pids) - set(killed) | {parent.pid}
    report = diagnose(session)
    assert set(report.quality.died) == set(killed)
    step = next(o for o in report.operations if o.name == "env_step")
    assert step.calls >= 50 * (workers - len(killed))
    assert step.union_high_ns <= report.wall_ns
    assert report.quality.attempted == report.quality.recorded + report.quality.open_spans
    size = sum(f.stat().st_size for f in path.rglob("*.hls"))
    assert size <= max(64 << 20, (workers + 1) * (4 << 20))
