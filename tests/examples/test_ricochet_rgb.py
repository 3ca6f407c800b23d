"""Seed 000's commands, run as its document says, at small size; and the game, the picture and the network behind them."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hotloop.store.reader import read_session

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ricochet_rgb"
MODULES = ("ricochet", "rendering", "model", "train_agent", "profiling", "test_profiling")
SMALL = ("--envs=8", "--rollout-steps=16", "--minibatches=2", "--hidden=8", "--image-size=32", "--cell-px=8")
DOCUMENT = ("--obs-mode", "rgb_image", "--convlstm", "--enable-profiling")


def run(folder: Path, *command: str) -> str:
    """A command of the document, with the example on the path as its project root would be."""
    environment = os.environ | {"PYTHONPATH": str(EXAMPLE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train(folder: Path, *flags: str) -> str:
    return run(folder, str(EXAMPLE / "train_agent.py"), *flags, *SMALL)


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    """The example's modules; other examples use the same short names, so they are forgotten afterwards."""
    sys.path.insert(0, str(EXAMPLE))
    known = {name: sys.modules.pop(name, None) for name in MODULES}
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    finally:
        sys.path.remove(str(EXAMPLE))
        for name, module in known.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


# ---- the document's commands ----


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Quick Start 1, first command."""
    folder = tmp_path_factory.mktemp("ricochet")
    return folder, train(folder, *DOCUMENT, "--timesteps", "300")


def test_training_measures_every_operation_of_the_document(trained: tuple[Path, str], example: Any) -> None:
    folder, printed = trained
    report = json.loads((folder / "profiling_report.json").read_text())
    operations = report["summary"]["operations"]
    documented = [name for names in example.test_profiling.DOCUMENTED.values() for name in names]
    assert len(documented) == 7 + 7 + 5 + 4
    for name in documented:
        assert operations[name]["call_count"] > 0, name
        assert 0 < operations[name]["min_time"] <= operations[name]["avg_time"] <= operations[name]["max_time"]
        assert name[:31] in printed
    assert not [name for name in operations if "simulated" in name]
    assert set(example.profiling.REAL_NAMES.values()) == {
        "training_total", "training_step", "training_data_collection", "training_model_update",
    }  # fmt: skip
    assert "Mem Peak(MB)  GPU Peak(MB)" in printed
    assert "times are the host's" in printed
    assert {"timestamp", "summary", "memory_snapshots"} <= set(report)
    assert report["memory_snapshots"]


def test_calls_are_those_of_the_loop(trained: tuple[Path, str]) -> None:
    """Three iterations of 8 envs and 16 steps; 3 epochs of 2 minibatches."""
    summary = json.loads((trained[0] / "profiling_report.json").read_text())["summary"]
    calls = {name: row["call_count"] for name, row in summary["operations"].items()}
    assert calls["training_total"] == 1
    assert calls["training_step"] == calls["training_data_collection"] == calls["training_model_update"] == 3
    assert calls["env_rgb_observation_generation"] == calls["env_rgb_rendering"] == calls["env_rgb_resizing"] == 3 * 16 * 8
    assert calls["recurrent_policy_forward"] == calls["recurrent_policy_action_sampling"] == 3 * (16 + 1)
    assert calls["training_backward"] == calls["training_optimizer_step"] == 3 * 3 * 2
    assert calls["convlstm_forward_pass"] == 3 * (16 + 1) + 3 * 3 * 2
    counters = summary["counters"]
    assert counters["env_steps"] == 3 * 16 * 8
    assert counters["updates"] == 18
    assert counters["samples"] == 3 * 3 * 16 * 8
    assert counters["episodes"] == counters["resets"] > 0
    assert summary["iterations"] == 3


def test_the_books_of_a_training_run_close(trained: tuple[Path, str]) -> None:
    summary = json.loads((trained[0] / "profiling_report.json").read_text())["summary"]
    rows = summary["operations"].values()
    assert all(0 <= row["share"] <= 1 for row in rows)
    own = sum(row["wall_self_time"] for row in rows)
    beside = summary["waiting_time"] + summary["unattributed_time"] + summary["profiler_time"]
    assert isclose(own + beside, summary["wall_time"], rel_tol=1e-6)
    assert summary["coverage"] >= 0.8  # 0.95 is a bar of benchmarks/examples.py: a busy machine adds to the rest
    (session,) = (trained[0] / "runs").iterdir()
    assert read_session(session).name == "ricochet_rgb"


def test_parts_are_not_longer_than_their_whole(trained: tuple[Path, str]) -> None:
    operations = json.loads((trained[0] / "profiling_report.json").read_text())["summary"]["operations"]

    def total(*names: str) -> float:
        return sum(operations[name]["total_time"] for name in names)

    def parts_of(prefix: str) -> list[str]:
        return [name for name in operations if name.startswith(prefix)]

    assert total(*parts_of("env_rgb_draw_")) <= total("env_rgb_rendering")
    assert total("env_rgb_rendering", "env_rgb_resizing", "env_rgb_to_array") <= total("env_rgb_observation_generation")
    inside = [name for name in parts_of("convlstm_") if name != "convlstm_forward_pass"]
    assert total(*inside) <= total("convlstm_forward_pass")
    assert total("training_data_collection", "training_model_update") <= total("training_step") <= total("training_total")


def test_custom_profiling_settings(tmp_path: Path) -> None:
    printed = train(
        tmp_path, *DOCUMENT, "--profiling-report", "my_report.json", "--profiling-summary-freq", "128", "--timesteps", "256"
    )
    assert printed.count("PROFILING SUMMARY") == 3  # after 128 and 256 env steps, and at the end
    assert "wrote my_report.json" in printed
    report = json.loads((tmp_path / "my_report.json").read_text())
    assert report["summary"]["counters"]["env_steps"] == 256
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my_report.json", "runs"]


def test_the_analyzer_writes_text_charts_and_details(trained: tuple[Path, str]) -> None:
    """Quick Start 2, its three commands."""
    folder, _ = trained
    command = ("-m", "profiling.analyzer", "--input", "profiling_report.json")
    assert "wrote analysis.txt" in run(folder, *command, "--output", "analysis.txt")
    run(folder, *command, "--charts", "performance.png")
    run(folder, *command, "--detailed", "detailed_analysis.json")

    text = (folder / "analysis.txt").read_text()
    assert "TOP 10 BOTTLENECKS:" in text
    assert re.search(r"Operation +Score +Time% +Avg\(ms\) +Calls", text)
    assert re.search(r"^convlstm_forward_pass +\d", text, re.MULTILINE)
    assert re.search(r"^training_backward +\d", text, re.MULTILINE)
    assert "CRITICAL" in text  # training_total holds nearly all of the time
    assert "RECOMMENDATIONS" in text
    picture = (folder / "performance.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    detailed = json.loads((folder / "detailed_analysis.json").read_text())
    assert {"total_operations", "total_time", "bottlenecks", "categories"} <= set(detailed["summary"])
    assert {"Environment", "Rendering", "Model", "Policy", "Training"} <= set(detailed["summary"]["categories"])
    rows = {row["name"]: row for row in detailed["summary"]["bottlenecks"] + detailed["summary"]["rare"]}
    assert rows["training_total"]["category"] == rows["training_data_collection"]["category"] == "Training"
    assert all(row["time_percent"] <= 100 for row in rows.values())
    assert detailed["raw_data"]["summary"]["operations"]


def test_the_test_script_checks_and_cleans_up(tmp_path: Path) -> None:
    """Quick Start 3."""
    printed = run(tmp_path, str(EXAMPLE / "test_profiling.py"))
    assert "all checks passed" in printed
    assert "FAIL" not in printed
    (folder,) = tmp_path.iterdir()
    assert {"analysis.txt", "performance.png", "detailed_analysis.json", "profiling_report.json", "runs"} == {
        path.name for path in folder.iterdir()
    }
    before = sorted(tmp_path.iterdir())
    assert "removed" in run(tmp_path, str(EXAMPLE / "test_profiling.py"), "--cleanup")
    assert sorted(tmp_path.iterdir()) == before


def test_custom_profiling_and_the_profiler_as_the_document_has_them(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        "-c",
        """
from profiling import profile, profile_function
from profiling import get_profiler
from profiling.profiler import get_profiler as same

profiler = get_profiler()
assert profiler is same()
with profile("not_recorded"):  # off until asked
    pass
profiler.enable()

with profile("my_operation", track_memory=True):
    block = bytearray(30 << 20)

@profile_function("my_function", track_memory=True)
def my_function():
    return len(block)

my_function()
profiler.disable()
my_function()
rows = profiler.summary()["operations"]
print(sorted(rows), rows["my_function"]["call_count"], rows["my_operation"]["memory_peak_mb"] > 25)
profiler.reset()
""",
    )
    assert printed == "['my_function', 'my_operation'] 1 True\n"


def test_without_profiling_nothing_is_written(tmp_path: Path) -> None:
    printed = train(tmp_path, "--obs-mode", "symbolic", "--timesteps", "128")
    assert "step      128" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_plain_network_on_symbols_learns_and_draws_its_curve(tmp_path: Path) -> None:
    easy = ("--board-size=6", "--robots=1", "--corners=0", "--max-distance=1", "--max-moves=8")
    quick = ("--timesteps=8192", "--envs=64", "--rollout-steps=8", "--hidden=8", "--lr=3e-3", "--gamma=0.9")
    flags = ("--obs-mode", "symbolic", "--enable-profiling", "--out", "here", "--curve", "curve.png")
    printed = run(tmp_path, str(EXAMPLE / "train_agent.py"), *flags, *easy, *quick)
    learnt, chance = re.search(r"last ten iterations (\S+), of a random player (\S+)", printed).groups()
    assert float(learnt) > float(chance) + 0.3, printed
    assert {path.name for path in tmp_path.iterdir()} == {"here"}
    assert (tmp_path / "here" / "curve.png").read_bytes().startswith(b"\x89PNG")
    operations = json.loads((tmp_path / "here" / "profiling_report.json").read_text())["summary"]["operations"]
    assert {"env_symbolic_observation_generation", "conv_forward_pass", "policy_forward"} <= set(operations)
    assert not [name for name in operations if "lstm" in name or "recurrent" in name or "rgb" in name]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--robots", "5"], "--robots 5: there are 1 to 4"),
        (["--board-size", "4"], "needs a board of at least 6"),
        (["--envs", "6", "--minibatches", "4"], "cannot be split"),
        (["--obs-mode", "text"], "invalid choice"),
    ],
)
def test_impossible_settings_are_refused(
    flags: list[str], sentence: str, example: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        example.train_agent.parse_arguments(flags)
    assert sentence in capsys.readouterr().err


# ---- the game ----


def empty_game(example: Any, robots: list[int], size: int = 8) -> Any:
    """A board without corners; cell = 8 * y + x, the block in the middle covers (3..4, 3..4)."""
    rules = example.ricochet.Rules(size=size, robots=len(robots), corners=0, max_moves=5)
    game = example.ricochet.Game(rules, random.Random(0))
    game.robots = list(robots)
    return game


def test_a_robot_slides_to_the_border_a_robot_or_the_block(example: Any) -> None:
    game = empty_game(example, [0, 7, 8 * 3])
    north, east, south, west = range(4)
    game.target, game.goal_robot = 63, 0
    game.move(0 * 4 + east)
    assert game.robots[0] == 6  # beside robot 1
    game.move(0 * 4 + south)
    assert game.robots[0] == 8 * 7 + 6
    game.move(2 * 4 + east)
    assert game.robots[2] == 8 * 3 + 2  # beside the block
    game.move(2 * 4 + west)
    assert game.robots[2] == 8 * 3
    game.move(2 * 4 + north)
    assert game.robots[2] == 0


def test_a_wall_stops_a_robot_from_both_sides(example: Any) -> None:
    game = empty_game(example, [0])
    game.board.east[0, 4] = True
    game.board.next_cell = game.board._next_cells()
    assert game.board.slide(0, 1, []) == 4
    assert game.board.slide(7, 3, []) == 5


@pytest.mark.parametrize("seed", range(20))
def test_walls_stand_between_two_cells_for_both(example: Any, seed: int) -> None:
    board = example.ricochet.Board(16, 16, random.Random(seed))
    for direction, back in ((0, 2), (1, 3), (2, 0), (3, 1)):
        for cell, ahead in enumerate(board.next_cell[direction]):
            assert ahead < 0 or board.next_cell[back][ahead] == cell
            if cell in board.block:
                assert ahead < 0 or ahead in board.block


@pytest.mark.parametrize("distance", [1, 2, 4])
def test_every_puzzle_can_be_solved_in_so_many_moves(example: Any, distance: int) -> None:
    rules = example.ricochet.Rules(max_distance=distance)
    game = example.ricochet.Game(rules, random.Random(distance))
    for _ in range(30):
        here, others = {game.robots[game.goal_robot]}, [r for i, r in enumerate(game.robots) if i != game.goal_robot]
        assert game.target not in here
        for _ in range(distance):
            here |= {game.board.slide(cell, direction, others) for cell in here for direction in range(4)}
        assert game.target in here
        assert not set(game.robots) & game.board.block
        game.reset()


def test_the_target_counts_for_its_own_robot_only(example: Any) -> None:
    game = empty_game(example, [0, 56])
    game.target, game.goal_robot = 7, 1
    reward, over = game.move(0 * 4 + 1)
    assert (game.robots[0], over) == (7, False)
    assert isclose(reward, -0.2)
    game.robots[0] = 30
    game.move(1 * 4 + 1)
    reward, over = game.move(1 * 4 + 0)
    assert (game.robots[1], over) == (7, True)
    assert isclose(reward, 0.8)
    assert isclose(game.episode_return, 0.4)


def test_a_puzzle_ends_when_its_moves_are_used_up(example: Any) -> None:
    game = empty_game(example, [0])
    game.target = 30
    assert [game.move(0)[1] for _ in range(5)] == [False] * 4 + [True]
    assert isclose(game.episode_return, -1.0)


def test_the_same_seed_plays_the_same_games(example: Any) -> None:
    def play(seed: int) -> tuple[list[float], np.ndarray]:
        rules = example.ricochet.Rules(max_moves=4)
        games = example.ricochet.Games(rules, 3, seed, example.ricochet.SymbolicObserver(rules))
        dice, rewards = np.random.default_rng(0), []
        for _ in range(20):
            seen, reward, begun, ended = games.step(dice.integers(games.n_actions, size=3))
            rewards += reward.tolist()
            assert len(ended) == begun.sum()
        return rewards, seen

    first, again, other = play(1), play(1), play(2)
    assert first[0] == again[0]
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])


# ---- what the agent sees ----


def test_symbols_show_walls_robots_and_target(example: Any) -> None:
    game = empty_game(example, [9, 18])
    game.target, game.goal_robot = 20, 1
    observer = example.ricochet.SymbolicObserver(game.rules)
    planes = np.empty(observer.shape, np.uint8)
    observer.observe(game, planes)
    assert planes.shape == (8, 8, 8)
    assert [np.flatnonzero(plane).tolist() for plane in planes[4:]] == [[9], [18], [20], [18]]
    assert planes[0, 0].all()  # walls to the north of the top row
    assert planes[1, :, -1].all()
    assert planes[1, 3, 2] == planes[3, 3, 5] == 255  # the block, from both sides


def test_the_picture_shows_grid_walls_robots_and_star(example: Any) -> None:
    game = empty_game(example, [9, 18])
    game.target, game.goal_robot = 20, 1
    game.board.east[6, 1] = True
    rendering = example.rendering
    observer = rendering.RgbObserver(game.rules, image_size=32, cell_px=20)
    image = observer.render(game)
    assert image.size == (161, 161)

    def pixel(x: float, y: float) -> tuple[int, ...]:
        """By cells, from the top left."""
        return image.getpixel((int(x * 20), int(y * 20)))

    assert pixel(1.5, 1.5) == rendering.ROBOTS[0]
    assert pixel(2.5, 2.5) == rendering.ROBOTS[1]
    assert pixel(4.5, 2.5) == rendering.ROBOTS[1]  # the star has its robot's colour
    assert pixel(4.1, 2.1) == rendering.PLATE
    assert pixel(6.5, 6.5) == rendering.BOARD
    assert pixel(6.0, 6.5) == rendering.LINE
    assert pixel(2.0, 6.5) == rendering.WALL
    assert pixel(4.0, 4.0) == rendering.WALL  # the block
    small = np.zeros(observer.shape, np.uint8)
    observer.observe(game, small)
    assert small.shape == (3, 32, 32)
    assert small[0, 4:8, 4:8].max() > 200 > small[1, 4:8, 4:8].max()  # robot 0 is red


def test_cached_layers_give_the_same_picture(example: Any) -> None:
    rules = example.ricochet.Rules(max_moves=3)
    game = example.ricochet.Game(rules, random.Random(5))
    plain = example.rendering.RgbObserver(rules)
    cached = example.rendering.RgbObserver(rules, cache_static=True)
    for _ in range(12):
        one, other = np.zeros(plain.shape, np.uint8), np.ones(plain.shape, np.uint8)
        plain.observe(game, one)
        cached.observe(game, other)
        assert np.array_equal(one, other)
        if game.move(game.rng.randrange(16))[1]:
            game.reset()
    assert len(cached.static) <= 1  # boards of the past are forgotten


# ---- the network and its update ----


def make_net(example: Any, layers: int = 2, ticks: int = 2) -> Any:
    torch.manual_seed(0)
    return example.model.ConvLSTMNet((3, 16, 16), hidden=4, layers=layers, ticks=ticks, features=8, map_size=8)


def test_a_rollout_at_once_is_the_same_as_step_by_step(example: Any) -> None:
    policy = example.model.Policy(make_net(example), 8, 4)
    seen = torch.randint(0, 256, (5, 3, 3, 16, 16), dtype=torch.uint8)
    keep = torch.ones(5, 3)
    keep[0] = 0
    keep[2, 1] = keep[4, 0] = 0
    first = state = torch.randn_like(policy.net.initial_state(3))
    actions, log_probs, values = [], [], []
    with torch.no_grad():
        for t in range(5):
            action, log_prob, value, state = policy(seen[t], state, keep[t])
            actions.append(action)
            log_probs.append(log_prob)
            values.append(value)
        again, _, value_again = policy.evaluate_actions(seen, first, keep, torch.stack(actions))
    torch.testing.assert_close(torch.stack(log_probs), again)
    torch.testing.assert_close(torch.stack(values), value_again)


def test_a_new_episode_remembers_nothing_and_an_old_one_does(example: Any) -> None:
    policy = example.model.Policy(make_net(example), 8, 4)
    seen = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    blank = policy.net.initial_state(2)
    with torch.no_grad():
        _, _, fresh, _ = policy(seen, blank, torch.ones(2))
        _, _, after, _ = policy(seen, torch.randn_like(blank), torch.tensor([0.0, 1.0]))
    assert after[0] == pytest.approx(fresh[0].item(), abs=1e-5)
    assert abs(after[1] - fresh[1]) > 1e-3


def test_gradients_reach_every_weight(example: Any) -> None:
    policy = example.model.Policy(make_net(example), 8, 4)
    seen = torch.randint(0, 256, (3, 2, 3, 16, 16), dtype=torch.uint8)
    log_probs, _, values = policy.evaluate_actions(
        seen, policy.net.initial_state(2), torch.ones(3, 2), torch.zeros(3, 2, dtype=torch.long)
    )
    (log_probs.sum() + values.sum()).backward()
    assert [name for name, weight in policy.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def test_advantages_stop_at_the_end_of_an_episode(example: Any) -> None:
    agent = SimpleNamespace(args=SimpleNamespace(gamma=0.5, gae_lambda=0.5))
    column = lambda *values: torch.tensor(values, dtype=torch.float32)[:, None]
    rollout = SimpleNamespace(
        values=column(1, 2, 4),
        rewards=column(1, 1, 1),
        ended=column(0, 1, 0).bool(),
        last_value=torch.tensor([8.0]),
    )
    result = example.train_agent.Agent.advantages(agent, rollout)
    last = 1 + 0.5 * 8 - 4
    middle = 1 - 2  # nothing follows
    first = 1 + 0.5 * 2 - 1 + 0.25 * middle
    assert result[:, 0].tolist() == pytest.approx([first, middle, last])
