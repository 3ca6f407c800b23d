"""examples/snake_dqn: the commands of its document, the rules of the game, flood fill, and every switch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLE = Path(__file__).parents[2] / "examples" / "snake_dqn"
SCRIPT = EXAMPLE / "scripts" / "training" / "train_dqn_mlp.py"

sys.path.insert(0, str(EXAMPLE))  # only while these are imported: other examples have a `scripts` of their own
from core import environment_vectorized, flood_fill, replay_buffer  # noqa: E402
from scripts.training import train_dqn, train_dqn_mlp  # noqa: E402

while str(EXAMPLE) in sys.path:
    sys.path.remove(str(EXAMPLE))
for module in [name for name in sys.modules if name.split(".")[0] in ("core", "scripts")]:
    del sys.modules[module]

Env, Settings, Trainer = environment_vectorized.VectorizedSnakeEnv, train_dqn.Settings, train_dqn.DQNTrainer
SMALL: dict[str, Any] = {"envs": 16, "board": 6, "hidden": 16, "batch": 16, "buffer": 2000, "device": "cpu"}


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(**options: Any) -> Any:
    trainer = Trainer(Settings(**{**SMALL, "env_steps": 1600, "train_steps": 1, **options}), train_dqn_mlp.make_mlp)
    trainer.train(verbose=False)
    return trainer


# ---- the document's commands ----


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which the document's command lines work as they are written, Windows interpreter and all."""
    (tmp_path / "scripts").symlink_to(EXAMPLE / "scripts")
    (tmp_path / "venv" / "Scripts").mkdir(parents=True)
    python = tmp_path / "venv" / "Scripts" / "python.exe"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path


def shell(folder: Path, command: str, code: int = 0) -> str:
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def report_of(folder: Path) -> Any:
    return json.loads(shell(folder, f"{sys.executable} -m hotloop report --json"))


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found.group(1))


TIMES = r"Select: (\d\.\d{4})s, Step: (\d\.\d{4})s, Push: (\d\.\d{4})s, Train: (\d+\.\d{4})s"


def test_the_command_of_tests_1a_to_1d_times_the_step_and_counts_every_game(checkout):
    out = shell(checkout, "./venv/Scripts/python.exe scripts/training/train_dqn_mlp.py --episodes 100")
    report = report_of(checkout)
    steps, episodes = number(r"Total environment steps: (\d+)", out), number(r"Episodes completed: (\d+)", out)
    assert "256 games" in out and "push loop, train 64 x" in out
    assert re.search(TIMES, out)
    assert episodes >= 100
    assert number(r"Steps per episode \(avg\): ([\d.]+)", out) == pytest.approx(steps / episodes, abs=0.05)
    assert out.count(": agrees") == 2 and "WRONG" not in out
    vector_steps = steps / 256
    assert report["counters"] == {
        "env_steps": steps,
        "episodes": episodes,
        "resets": episodes + 256,
        "updates": 64 * vector_steps,
        "samples": 64 * 64 * vector_steps,
    }
    assert report["iterations"]["closed"] == vector_steps


def test_the_books_of_a_run_close_and_little_is_unattributed(tmp_path):
    flags = "--envs 64 --env-steps 6400 --train-steps 8 --flood-fill cache --push batch --log heavy"
    shell(tmp_path, f"{sys.executable} {SCRIPT} {flags}")
    report = report_of(tmp_path)
    calls = {o["name"]: o["calls"] for o in report["operations"]}
    parts = {"push_transfer", "push_store", "move", "flood_fill", "features", "sample", "loss", "backward", "optimizer_step"}
    assert {"setup", "reset", "select", "step", "push", "train", "log", *parts} == set(calls)
    assert calls["select"] == calls["step"] == calls["push"] == calls["train"] == 100
    assert calls["backward"] == 100 * 8
    assert all(0 <= o["union_s"] <= report["wall_s"] for o in report["operations"])
    rows = report["balance"]
    leaves = set(range(len(rows))) - {row["parent"] for row in rows}
    assert sum(rows[i]["ns"] for i in leaves) == rows[0]["ns"]
    assert report["coverage"] >= 0.8  # 0.95 is a bar of benchmarks/examples.py: a busy machine adds to the rest
    assert sum(calls.values()) * 64e-9 <= 0.01 * report["wall_s"]


@pytest.mark.parametrize("envs", [32, 64])
def test_test_a_runs_with_fewer_games(checkout, envs):
    out = shell(checkout, f"./venv/Scripts/python.exe scripts/training/train_dqn_mlp.py --episodes 100 --envs {envs}")
    assert f"{envs} games" in out and f"train {envs // 4} x" in out
    assert number(r"Episodes completed: (\d+)", out) >= 100
    assert report_of(checkout)["counters"]["env_steps"] == number(r"Total environment steps: (\d+)", out)


def test_one_step_is_timed_by_itself_and_as_a_block(tmp_path):
    out = shell(tmp_path, f"{sys.executable} {SCRIPT} --envs 16 --env-steps 800 --single-step 5 --push device --train-steps 2")
    assert re.search(r"SINGLE STEP \(vector step 5\)\n" + TIMES, out)
    assert re.search(r"SINGLE STEP \(mean of 50 vector steps\)\n" + TIMES, out)
    assert "Rollout Timing Profile (agent_step=800)" in out
    assert "- Train Total:" in out and "• Backward:" in out


def test_the_functions_of_the_same_command_are_profiled(checkout):
    out = shell(checkout, "./venv/Scripts/python.exe scripts/training/train_dqn_mlp.py --episodes 10 --functions 20")
    table = out[out.index("FUNCTIONS") :]
    assert "Ordered by: cumulative time" in table and "due to restriction <20>" in table
    assert re.search(r"train_dqn\.py:\d+\(train_step\)", table)


def test_the_document_s_cprofile_snippet_runs_as_it_is_written(tmp_path):
    snippet = f"""
import sys; sys.path.insert(0, {str(EXAMPLE)!r})
from scripts.training.train_dqn_mlp import DQNTrainer, Settings, make_mlp
trainer = DQNTrainer(Settings(episodes=10, envs=16, device="cpu"), make_mlp)
import cProfile
import pstats

profiler = cProfile.Profile()
profiler.enable()

trainer.train(verbose=False)

profiler.disable()
stats = pstats.Stats(profiler)
stats.sort_stats('cumulative')
stats.print_stats(20)
"""
    (tmp_path / "snippet.py").write_text(snippet)
    out = shell(tmp_path, f"{sys.executable} snippet.py")
    assert "Ordered by: cumulative time" in out and "(train)" in out
    assert not (tmp_path / "runs").exists()  # HotLoop is off until asked


def test_the_curve_is_saved_with_the_random_baseline(tmp_path):
    flags = "--envs 64 --board 6 --env-steps 25600 --train-steps 2 --push batch --curve deep/curve.png --out kept"
    out = shell(tmp_path, f"{sys.executable} {SCRIPT} {flags}")
    random, last = number(r"score of random moves: ([\d.]+)", out), number(r"episodes: ([\d.]+)\n", out)
    assert last > 5 * random
    assert (tmp_path / "deep" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "kept"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--envs", "0"], "--envs must be at least 1"),
        (["--flood-fill", "0"], "none of off, every, cache, or a number of steps from 1 up"),
        (["--train-steps", "-1"], "neither auto nor a number of training steps"),
        (["--curve", "x.png", "--log", "quiet"], "--curve needs the metrics"),
        (["--no-profile", "--single-step", "3"], "--single-step reads the spans"),
        (["--buffer", "100"], "--buffer must hold at least one vector step"),
        (["--explore", "0"], "--explore is a share of the run"),
        (["--board", "3"], "--board must be at least 4"),
    ],
)
def test_wrong_flags_are_answered_with_one_sentence(flags, sentence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_dqn_mlp.py", *flags])
    with pytest.raises(SystemExit) as stopped:
        train_dqn_mlp.main()
    assert stopped.value.code == 2 and sentence in capsys.readouterr().err


# ---- the switches ----


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        ({"train_steps": 0}, 0),  # test 1A
        ({"train_steps": 1}, 100),  # tests 1B, C2
        ({"train_steps": "auto"}, 400),  # a quarter of 16 games
        ({"train_steps": 16, "train_every": 4}, 400),  # test C3
    ],
)
def test_training_steps_follow_their_switch(options, updates):
    trainer = train(**options)
    assert trainer.vector_steps == 100 and trainer.updates == updates


def test_all_ways_of_pushing_store_the_same_transitions():
    buffers = [train(push=way, train_steps=0).replay_buffer for way in train_dqn.PUSHES]
    first = buffers[0]
    assert len(first) == 1600 and first.dones.any() and first.rewards.any()
    for other in buffers[1:]:
        for name in ("states", "actions", "rewards", "next_states", "dones"):
            assert np.array_equal(getattr(first, name), np.asarray(getattr(other, name))), name


def test_host_pushes_train_the_same_network():
    networks = [list(train(push=way).online.parameters()) for way in ("loop", "items", "rows", "batch")]
    for other in networks[1:]:
        assert all(torch.equal(a, b) for a, b in zip(networks[0], other, strict=True))


@pytest.mark.parametrize("kind", [replay_buffer.ReplayBuffer, replay_buffer.DeviceReplayBuffer])
def test_a_full_buffer_keeps_the_newest(kind):
    buffer = kind(5, 1, torch.device("cpu"))
    as_pushed = np.asarray if kind is replay_buffer.ReplayBuffer else torch.as_tensor
    for first in (0, 4):
        values = np.arange(first, first + 4, dtype=np.float32)
        columns = (values[:, None], values.astype(np.int64), values, values[:, None], values > 5)
        buffer.push_batch(*map(as_pushed, columns))
    assert len(buffer) == 5
    assert sorted(np.asarray(buffer.rewards).tolist()) == [3, 4, 5, 6, 7]
    states, actions, rewards, next_states, dones = buffer.sample(64)
    assert torch.equal(states[:, 0], rewards) and torch.equal(next_states[:, 0], rewards)
    assert torch.equal(actions, rewards.long()) and torch.equal(dones, rewards > 5)


def test_logging_changes_what_is_kept_but_not_what_is_counted():
    quiet, normal, heavy = (train(log=log) for log in ("quiet", "normal", "heavy"))
    assert quiet.episode == normal.episode == heavy.episode > 10
    assert quiet.finished_steps == normal.finished_steps == heavy.finished_steps
    assert not quiet.metrics.scores and not quiet.metrics.losses
    assert normal.metrics.scores == heavy.metrics.scores
    assert normal.metrics.losses == pytest.approx(heavy.metrics.losses)
    assert len(heavy.metrics.losses) == heavy.updates


@pytest.mark.parametrize("log", ["normal", "heavy"])
def test_steps_of_finished_and_running_episodes_add_up(log):
    trainer = train(log=log, env_steps=0, episodes=50)
    assert trainer.episode >= 50
    assert trainer.finished_steps + trainer.env.unfinished_steps() == trainer.total_steps == trainer.vector_steps * 16


def test_the_same_seed_gives_the_same_run_and_another_does_not():
    one, again, other = train(seed=3), train(seed=3), train(seed=4)
    assert one.metrics.scores == again.metrics.scores and one.metrics.losses == again.metrics.losses
    assert one.metrics.losses != other.metrics.losses


# ---- the rules ----


class PlainSnake:
    """One game by the rules, one cell at a time; told where it starts and where the food is."""

    def __init__(self, env: Any, game: int) -> None:
        order = torch.argsort(env.timers[game], descending=True).tolist()
        body = [cell for cell in order if 0 < env.timers[game, cell] < environment_vectorized.START_LENGTH + 1]
        self.body = deque((cell // env.width, cell % env.width) for cell in body)
        self.heading, self.board, self.hunger = int(env.heading[game]), env.board, 0

    def play(self, action: int, food: tuple[int, int], hunger_limit: int) -> tuple[float, bool]:
        self.heading = (self.heading + (0, 1, 3)[action]) % 4
        row, column = self.body[0]
        head = (row + (-1, 0, 1, 0)[self.heading], column + (0, 1, 0, -1)[self.heading])
        ate = head == food
        if not ate:
            self.body.pop()
        inside = 1 <= head[0] <= self.board and 1 <= head[1] <= self.board
        hit = not inside or head in self.body
        self.body.appendleft(head)
        self.hunger = 0 if ate else self.hunger + 1
        dead = hit or self.hunger >= hunger_limit
        return (1.0 if ate else 0.0) - (1.0 if dead else 0.0), dead or len(self.body) == self.board**2


def safe_moves(env: Any, seen: Any, random: Any) -> Any:
    """Any action, but mostly one that does not die at once, towards food: games that get long."""
    draw = torch.rand(env.num_envs, 3, generator=random) + 3 * (1 - seen[:, :3])
    towards = env._ahead() == env.food[:, None]
    return (draw + 5 * towards).argmax(1)


def test_games_follow_the_rules_of_a_plain_snake():
    env, random = Env(12, 5, seed=2), torch.Generator().manual_seed(5)
    seen = env.reset()
    plain = [PlainSnake(env, game) for game in range(12)]
    ended = longest = 0
    for _ in range(400):
        actions, food = safe_moves(env, seen, random), env.food.tolist()
        seen, rewards, dones, info = env.step(actions)
        for game, one in enumerate(plain):
            cell = (food[game] // env.width, food[game] % env.width)
            reward, done = one.play(int(actions[game]), cell, env.hunger_limit)
            assert (reward, done) == (float(rewards[game]), bool(dones[game]))
            longest = max(longest, len(one.body))
            if done:
                ended += 1
                assert int(info["score"][game]) == len(one.body) - 3
                plain[game] = PlainSnake(env, game)
            else:
                occupied = [int(env.timers[game, row * env.width + column]) for row, column in one.body]
                assert occupied == list(range(len(one.body), 0, -1))
    assert ended > 20 and longest > 8


def test_food_lies_on_free_cells_and_is_spread_over_the_board():
    env = Env(512, 5)
    env.reset()
    assert (env.timers.gather(1, env.food[:, None]) == 0).all()
    assert len(set(env.food.tolist())) == 25


def test_danger_is_seen_exactly_where_the_next_move_dies():
    env, random = Env(64, 5, seed=3), torch.Generator().manual_seed(1)
    seen = env.reset()
    for _ in range(60):
        seen, *_ = env.step(safe_moves(env, seen, random))
    for action in range(3):
        timers, head, heading = env.timers.clone(), env.head.clone(), env.heading.clone()
        food, hunger, length, age = env.food.clone(), env.hunger.clone(), env.length.clone(), env.age.clone()
        env.hunger = torch.zeros_like(env.hunger)
        _, rewards, _, _ = env.step(torch.full((64,), action))
        assert torch.equal(rewards < 0, seen[:, action] > 0)
        env.timers, env.head, env.heading, env.food = timers, head, heading, food
        env.hunger, env.length, env.age = hunger, length, age
    assert 0 < seen[:, :3].sum() < 192


def test_a_snake_that_only_circles_starves():
    env = Env(1, 6)
    env.reset()
    env.timers[0] = env._start_boards[0]
    env.head[0], env.heading[0] = 4 * 8 + 4, 0  # in the middle, circling over four cells
    env.timers[0, env.timers[0] < 10] = 0
    for i, cell in enumerate((36, 44, 52)):
        env.timers[0, cell] = 3 - i
    env.food[0] = 9
    for _ in range(env.hunger_limit - 1):
        _, rewards, dones, _ = env.step(torch.ones(1, dtype=torch.int64))
        assert not dones.any() and not rewards.any()
    _, rewards, dones, info = env.step(torch.ones(1, dtype=torch.int64))
    assert dones.all() and rewards.item() == -1 and info["length"].item() == env.hunger_limit and info["score"].item() == 0


def test_a_full_board_ends_the_game_with_food_and_no_death():
    env = Env(1, 4)
    env.reset()
    cycle = [
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
        (4, 3),
        (3, 3),
        (2, 3),
        (2, 2),
        (3, 2),
        (4, 2),
        (4, 1),
        (3, 1),
        (2, 1),
    ]
    cells = [row * 6 + column for row, column in cycle]
    env.timers[0, env.timers[0] < 10] = 0
    for timer, cell in enumerate(cells[:-1], 1):
        env.timers[0, cell] = timer
    env.head[0], env.heading[0], env.food[0], env.length[0] = cells[-2], 0, cells[-1], 15
    _, rewards, dones, info = env.step(torch.zeros(1, dtype=torch.int64))
    assert dones.all() and rewards.item() == 1 and info["score"].item() == 13
    assert env.length.item() == 3  # and a new game has begun


# ---- flood fill ----


def grow(blocked: np.ndarray, width: int, start: int) -> int:
    """The reference: colour the start, then every free neighbour of a coloured cell, until nothing changes."""
    free = ~blocked.reshape(-1, width)
    colour = np.zeros_like(free)
    colour.flat[start] = free.flat[start]
    while True:
        wider = colour.copy()
        wider[1:] |= colour[:-1]
        wider[:-1] |= colour[1:]
        wider[:, 1:] |= colour[:, :-1]
        wider[:, :-1] |= colour[:, 1:]
        wider &= free
        if (wider == colour).all():
            return int(colour.sum())
        colour = wider


def padded(board: list[str]) -> np.ndarray:
    width = len(board[0]) + 2
    return np.array([[c != "." for c in row] for row in ["#" * width, *(f"#{row}#" for row in board), "#" * width]]).reshape(
        1, -1
    )


SEARCHES = [flood_fill.SearchEveryTime, flood_fill.SearchOncePerComponent]


@pytest.mark.parametrize("kind", SEARCHES)
def test_rooms_of_a_drawn_board_have_the_size_one_counts(kind):
    board = padded(["..x..", "..x..", "xxx..", ".x.x.", "x...x"])
    rooms = kind(7).count(board, np.array([[8, 11, 10]]))
    assert rooms.tolist() == [[4, 7, 0]]
    assert kind(7).count(board, np.array([[29, 31, 0]])).tolist() == [[1, 4, 0]]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_cache_and_the_search_equal_the_reference_on_any_boards(data):
    size = data.draw(st.integers(2, 6))
    width = size + 2
    boards = data.draw(st.lists(st.lists(st.booleans(), min_size=size * size, max_size=size * size), min_size=1, max_size=5))
    blocked = np.ones((len(boards), width, width), bool)
    for i, board in enumerate(boards):
        blocked[i, 1:-1, 1:-1] = np.array(board).reshape(size, size)
    blocked = blocked.reshape(len(boards), -1)
    every, cached = flood_fill.SearchEveryTime(width), flood_fill.SearchOncePerComponent(width)
    forgetful = flood_fill.SearchOncePerComponent(width, capacity=1)
    for _ in range(3):
        starts = np.array(
            data.draw(st.lists(st.tuples(*[st.integers(0, width**2 - 1)] * 3), min_size=len(boards), max_size=len(boards)))
        )
        wanted = [[grow(row, width, start) for start in three] for row, three in zip(blocked, starts.tolist(), strict=True)]
        for search in (every, cached, forgetful):
            assert search.count(blocked, starts).tolist() == wanted
    assert cached.searched <= every.searched
    assert len(forgetful.known) == 1


def test_playing_with_the_cache_shows_the_agent_the_same_as_searching_every_time():
    envs = [Env(32, 6, mode, seed=4) for mode in ("every", "cache")]
    every, cached = envs
    seen, other = (env.reset() for env in envs)
    random = torch.Generator().manual_seed(2)
    for _ in range(60):
        assert seen.shape == (32, 14) and torch.equal(seen, other)
        actions = safe_moves(every, seen, random)
        (seen, *_), (other, *_) = (env.step(actions) for env in envs)
        ahead, blocked = every._ahead().tolist(), (every.timers > 1).numpy()
        wanted = [[grow(row, 8, start) / 36 for start in three] for row, three in zip(blocked, ahead, strict=True)]
        assert torch.allclose(seen[:, 11:], torch.tensor(wanted))
        assert torch.equal(seen[:, :3] > 0, seen[:, 11:] == 0)  # no room is danger
    assert cached.flood.asked == every.flood.asked == every.flood.searched == 61 * 96
    assert cached.flood.searched < every.flood.searched / 2


def test_searching_every_n_steps_keeps_the_last_answer_in_between():
    every, third = Env(8, 6, "every", seed=4), Env(8, 6, 3, seed=4)
    seen, stale = every.reset(), third.reset()
    assert torch.equal(seen, stale)
    last = stale[:, 11:]
    random = torch.Generator().manual_seed(2)
    for move in range(1, 13):
        actions = safe_moves(every, seen, random)
        (seen, *_), (stale, *_) = every.step(actions), third.step(actions)
        assert torch.equal(seen[:, :11], stale[:, :11])
        assert torch.equal(stale[:, 11:], seen[:, 11:] if move % 3 == 0 else last)
        last = stale[:, 11:]
    assert third.flood.searched == 5 * 24


def test_without_flood_fill_the_agent_sees_eleven_numbers_and_nothing_is_searched():
    env = Env(4, 6, "off")
    assert env.reset().shape == (4, 11) and env.flood is None and not env.use_flood_fill
