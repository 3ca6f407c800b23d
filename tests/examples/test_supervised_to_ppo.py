"""examples/supervised_to_ppo: the commands of its document, its world and its two teachers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "supervised_to_ppo"
RUN = EXAMPLE / "tools" / "run.py"
RECIPE = "cvc.thinky_supervised_to_ppo"

sys.path.insert(0, str(EXAMPLE))  # only while these are imported: other examples have a `tools` of their own
from thinky import teacher, world  # noqa: E402
from thinky.advice import Pace, check_list, find_expected, judge_pace  # noqa: E402
from thinky.losses import estimate_advantages  # noqa: E402
from thinky.settings import Settings, SettingsError, apply_arguments, list_settings  # noqa: E402
from thinky.trainer import SUPERVISED, Trainer, train  # noqa: E402

sys.path.remove(str(EXAMPLE))


def run(folder: Path, *command: object, code: int = 0, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | (env or {})
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def blocks(text: str) -> dict[int, list[str]]:
    """agent_step -> the lines of HotLoop's timing block."""
    rule = "=" * 60
    found = re.findall(rf"{rule}\nRollout Timing Profile \(agent_step=(\d+)\)\n{rule}\n(.*?)\n{rule}", text, re.DOTALL)
    return {int(step): body.splitlines() for step, body in found}


def milliseconds(lines: list[str], name: str) -> float:
    (only,) = (line for line in lines if re.match(rf"\s*[-•] {re.escape(name)}:", line))
    return float(only.split(":")[1].split()[0])


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Method 1, as in the document."""
    folder = tmp_path_factory.mktemp("method1")
    return folder, run(
        folder, EXAMPLE / "recipes" / "experiment" / "cvc" / "profile_thinky_supervised.py", "--device", "cpu"
    ).stdout


# ---- the document's three methods ----


def test_method_1_prints_the_timing_block_every_ten_rollouts(profiled: tuple[Path, str]) -> None:
    shown = blocks(profiled[1])
    assert list(shown) == [5120, 10240]
    taught, alone = shown[5120], shown[10240]
    for name in ("Student Forward", "Teacher Total", "Nim Calls", "Stack+Back", "Replay Store", "Env Step"):
        assert milliseconds(taught, name) > 0
    assert milliseconds(taught, "Nim Calls") < milliseconds(taught, "Teacher Total")
    assert milliseconds(alone, "Student Forward") > 0
    assert not any("Teacher" in line or "Nim Calls" in line for line in alone)  # the schedule switched it off
    assert sum("<-- BOTTLENECK" in line for line in taught) == 1
    assert profiled[1].count("GPU->CPU: student and teacher share the CPU, nothing is copied") == 2


def test_method_1_writes_a_trace_of_each_phase(profiled: tuple[Path, str]) -> None:
    files = sorted(profiled[0].glob("train_dir/profile_thinky_supervised_*/profiler_trace_*.json"))
    assert [path.name for path in files] == ["profiler_trace_ppo.json", "profiler_trace_supervised.json"]
    for path in files:
        events = json.loads(path.read_text())["traceEvents"]
        steps = {event["name"] for event in events if str(event.get("name", "")).startswith("ProfilerStep#")}
        assert steps == {f"ProfilerStep#{n}" for n in (4, 5, 6, 7)}  # two waited, two warmed up, four kept
        shapes = [event for event in events if event.get("name") == "aten::addmm" and event.get("args", {}).get("Input Dims")]
        assert shapes
        assert f"wrote {path.relative_to(profiled[0])}" in profiled[1]


def test_method_1_books_close_and_name_the_time(profiled: tuple[Path, str]) -> None:
    (path,) = (profiled[0] / "runs").iterdir()
    data = json.loads(run(profiled[0], "-m", "hotloop", "report", path, "--json").stdout)
    assert data["coverage"] >= 0.8  # 0.95 is a bar of benchmarks/examples.py: a busy machine adds to the rest
    assert data["counters"] == {"env_steps": 10240, "samples": 10240, "updates": 80, "episodes": 10, "resets": 10}
    assert data["iterations"]["closed"] == 20
    rows = data["balance"]
    for i, row in enumerate(rows):
        below = [other["ns"] for other in rows if other["parent"] == i]
        assert 0 <= row["share"] <= 1
        assert not below or sum(below) == row["ns"]
    assert all(0 <= row["union_s"] <= data["wall_s"] for row in data["operations"])
    calls = {row["name"]: row["calls"] for row in data["operations"]}
    assert calls["teacher_total"] == calls["reshape"] == calls["GPU->CPU"] == calls["nim_calls"] == calls["Stack+Back"] == 80
    assert calls["replay_store"] == calls["env_step"] == 160
    assert f"next: hotloop report {path.relative_to(profiled[0])}" in profiled[1]


def test_method_1_judges_speed_and_advice(profiled: tuple[Path, str]) -> None:
    text = profiled[1]
    assert re.search(r"  supervised +[\d,]+ SPS, expected [\d,]+-[\d,]+ on CPU \(1 thread\) supervised", text)
    assert re.search(r"  ppo +[\d,]+ SPS, expected [\d,]+-[\d,]+ on CPU \(1 thread\) PPO", text)
    assert [int(n) for n in re.findall(r"^  \[[ x]\] (\d)\.", text, re.MULTILINE)] == [1, 2, 3, 4, 5, 6, 7]
    assert "verified, 0 teacher calls in the PPO phase" in text


def test_the_script_in_the_examples_folder_is_the_same(tmp_path: Path) -> None:
    arguments = ["trainer.total_timesteps=2_560", "supervised_steps=2_560", "trainer.profiler.enabled=False"]
    done = run(
        tmp_path,
        EXAMPLE / "profile_thinky_supervised.py",
        "--out",
        tmp_path / "o",
        "--seed",
        3,
        *arguments,
        "loss.timing_every=5",
    )
    assert list(blocks(done.stdout)) == [2560]
    (settings,) = tmp_path.glob("o/train_dir/profile_thinky_supervised_*/settings.json")
    assert json.loads(settings.read_text())["seed"] == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o"]


def test_method_2_runs_as_documented(tmp_path: Path) -> None:
    arguments = [
        "run=msb_profile", "base_missions=extractor_hub_30", "supervised_steps=5_000", "trainer.total_timesteps=10_000",
        "trainer.profiler.enabled=True", "trainer.profiler.wait_steps=2", "trainer.profiler.warmup_steps=2",
        "trainer.profiler.active_steps=4", "trainer.profiler.record_shapes=True", "evaluator.evaluate_local=False",
    ]  # fmt: skip
    done = run(tmp_path, RUN, RECIPE, *arguments, "device=cpu")
    assert list(blocks(done.stdout)) == [5120, 10240]
    assert len(list(tmp_path.glob("train_dir/msb_profile_*/profiler_trace_*.json"))) == 2
    (folder,) = tmp_path.glob("train_dir/msb_profile_*")
    assert [row["phase"] for row in metrics(folder)] == ["supervised"] * 10 + ["ppo"] * 10
    assert not (folder / "curve.png").exists()  # nothing was evaluated


def test_method_3_is_one_changed_import(tmp_path: Path) -> None:
    recipe = """
        import sys
        sys.path.insert(0, {example!r})
        from metta.rl.loss.{module} import ActionSupervisedAndCriticConfig
        from thinky.settings import Settings, apply_arguments
        from thinky.trainer import train
        settings = Settings(loss=ActionSupervisedAndCriticConfig(), run={module!r})
        apply_arguments(settings, ["trainer.total_timesteps=5_120", "evaluator.evaluate_local=False", "device=cpu"])
        train(settings)
    """
    shown = {}
    for module in ("action_supervised_and_critic", "action_supervised_and_critic_profiled"):
        script = tmp_path / f"{module}.py"
        script.write_text("\n".join(line.strip() for line in recipe.format(example=str(EXAMPLE), module=module).splitlines()))
        shown[module] = run(tmp_path, script).stdout
    assert not blocks(shown["action_supervised_and_critic"])
    assert list(blocks(shown["action_supervised_and_critic_profiled"])) == [5120]
    assert [p.name.rsplit("-", 2)[0] for p in (tmp_path / "runs").iterdir()] == ["action_supervised_and_critic_profiled"]


def test_the_checklists_settings_do_something(tmp_path: Path) -> None:
    arguments = [
        "run=tuned", "trainer.batch_size=1024", "trainer.mixed_precision=True", "trainer.pinned_buffers=True",
        "supervised_steps=2_048", "trainer.total_timesteps=4_096", "trainer.expected_sps=1_000_000_000",
        "evaluator.epoch_interval=2", "evaluator.num_envs=2", "base_missions=extractor_hub_30,extractor_hub_50",
    ]  # fmt: skip
    # some virtual machines announce AMX and then refuse its instructions: bfloat16 without them
    env = {"CC": "no-such-compiler", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    done = run(tmp_path, RUN, RECIPE, *arguments, "--device", "cpu", env=env)
    assert done.stdout.count("expected 1,000,000,000 by trainer.expected_sps  WARNING: under 50 %") == 2
    assert "The teacher runs in NumPy" in done.stderr
    (folder,) = tmp_path.glob("train_dir/tuned_*")
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [row["agent_step"] for row in metrics(folder)] == [1024, 2048, 3072, 4096]
    assert set(torch.load(folder / "student.pt", weights_only=True)) >= {"policy.weight", "value.weight"}
    assert re.search(r"Return per agent and episode: random \d\.\d\d, teacher \d\.\d\d, student \d\.\d\d", done.stdout)


def test_mistakes_end_in_one_sentence_and_code_2(tmp_path: Path) -> None:
    done = run(tmp_path, RUN, RECIPE, "trainer.batchsize=1024", code=2)
    assert done.stderr == "There is no setting 'trainer.batchsize'; did you mean trainer.batch_size?\n"
    assert "cvc.thinky_supervised_to_ppo" in run(tmp_path, RUN, "cvc.nothing", code=2).stderr
    assert "trainer.profiler.active_steps=4" in run(tmp_path, RUN, RECIPE, "--help").stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("supervised_steps", "not of the form key=value"),
        ("supervised_steps=many", "takes a whole number such as 5_000"),
        ("trainer.gamma=x", "takes a number"),
        ("trainer.profiler.enabled=maybe", "takes True or False"),
        ("trainer.batch_size=500", "must be a multiple of 64"),
        ("trainer.minibatch_size=300", "must be a multiple of trainer.minibatch_size=300"),
        ("trainer.num_envs=0", "must be at least 1"),
        ("base_missions=moon", "takes extractor_hub_30"),
        ("teacher.backend=nim", "must be auto, compiled or numpy"),
        ("device=abacus", "cannot be used here"),
        ("run=a/b", "must be a plain name"),
    ],
)
def test_settings_that_cannot_be_are_refused(argument: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        apply_arguments(Settings(), [argument])


def test_numbers_may_be_written_with_underscores() -> None:
    settings = Settings()
    apply_arguments(settings, ["trainer.total_timesteps=10_000", "ppo.learning_rate=1e-4", "evaluator.evaluate_local=false"])
    keys = list_settings(settings)
    assert keys["trainer.total_timesteps"] == 10_000
    assert keys["ppo.learning_rate"] == 1e-4
    assert keys["evaluator.evaluate_local"] is False


# ---- speed and advice ----


def test_under_half_of_the_expected_speed_is_a_warning() -> None:
    row = find_expected("Tesla V100-SXM2", "supervised")
    assert (row.low, row.high) == (800, 1200)
    assert "WARNING" in judge_pace(Pace("supervised", 399, 9), "Tesla V100-SXM2", 0)
    assert "WARNING" not in judge_pace(Pace("supervised", 401, 9), "Tesla V100-SXM2", 0)
    assert "no expectation for Abacus" in judge_pace(Pace("ppo", 1.0, 9), "Abacus", 0)


def test_advice_applies_where_the_numbers_say_so() -> None:
    times = {"evaluate": 3.0, "GPU->CPU": 2.0, "nim_calls": 4.0, "replay_store": 0.1}
    summary = {"wall_time": 10.0, "operations": {name: {"total_time": seconds} for name, seconds in times.items()}}
    lines = list(check_list(Settings(), False, 5, summary))
    applies = [int(line.split(".")[0][-1]) for line in lines if line.startswith("  [x]")]
    assert applies == [1, 2, 4, 6]
    assert "evaluation took 30.0% of the time" in lines[0]


# ---- the two teachers ----


def observations(count: int, seed: int) -> np.ndarray:
    """Random windows, from open to crowded."""
    rng = np.random.default_rng(seed)
    seen = np.empty((count, world.OBSERVATION), np.uint8)
    for row in seen:
        free = rng.uniform(0.3, 0.95)
        others = rng.dirichlet(np.ones(5)) * (1 - free)
        row[: world.CELLS] = rng.choice(world.CODES, world.CELLS, p=[free, *others])
    seen[:, world.CELLS] = rng.integers(0, 2, count)
    seen[:, world.CELLS + 1 : world.CELLS + 3] = rng.integers(128 - 40, 128 + 40, (count, 2))
    seen[:, world.CELLS + 3] = rng.integers(0, 5, count)
    return seen


def test_the_compiled_teacher_and_the_numpy_one_agree(tmp_path: Path) -> None:
    backend, act = teacher.load_teacher("auto", tmp_path)
    assert backend == "compiled"
    seen = observations(4000, 1)
    actions = act(seen)
    assert (actions == teacher.numpy_act(seen)).all()
    assert set(actions) == set(range(5))
    (library,) = tmp_path.iterdir()
    before = library.stat().st_mtime_ns
    teacher.load_teacher("compiled", tmp_path)
    assert library.stat().st_mtime_ns == before  # compiled once


def test_without_a_compiler_the_teacher_falls_back_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert teacher.load_teacher("auto", tmp_path) == ("numpy", teacher.numpy_act)
    assert "no C compiler found" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"teacher\.backend=numpy"):
        teacher.load_teacher("compiled", tmp_path)


def window(*marks: tuple[int, int, int], carrying: int = 0, hub: tuple[int, int] = (0, 0), last: int = 0) -> np.ndarray:
    """An open window with codes at (dy, dx) from the agent."""
    cells = np.full((world.WIDE, world.WIDE), world.FREE, np.uint8)
    for dy, dx, code in ((0, 0, world.AGENT), *marks):
        cells[world.RADIUS + dy, world.RADIUS + dx] = code
    return np.array([[*cells.ravel(), carrying, 128 + hub[0], 128 + hub[1], last]], np.uint8)


@pytest.mark.parametrize("backend", ["compiled", "numpy"])
def test_the_teacher_fetches_delivers_and_explores(backend: str, tmp_path: Path) -> None:
    _, act = teacher.load_teacher(backend, tmp_path)
    stay, north, south, west, east = range(5)
    assert act(window((0, 2, world.ORE))) == east
    assert act(window((0, 2, world.ORE), carrying=1, hub=(3, 0))) == south  # loaded: to the hub
    assert act(window((2, 0, world.ORE), (1, 0, world.WALL), (0, 1, world.WALL), (0, -1, world.WALL))) == north  # around
    assert act(window(last=west)) == west  # nothing in sight: straight on
    assert act(window(last=west, hub=(0, 20))) == east  # but not too far away
    walls = [(dy, dx, world.WALL) for dy, dx in world.MOVES[1:]]
    assert act(window(*walls)) == stay


# ---- the world ----


def step_by_hand(w: Any, env: int, actions: list[int]) -> tuple[np.ndarray, np.ndarray, list[int], list[bool], list[float]]:
    """The rules, one agent at a time."""
    side = int(w.cells.shape[1] ** 0.5)
    before, after = w.cells[env].numpy().copy(), w.cells[env].numpy().copy()
    timer, at, carrying = w.recovery[env].numpy().copy(), w.at[env].tolist(), w.carrying[env].tolist()
    rewards, mined = [0.0] * w.agents, []
    targets = [at[i] + world.MOVES[a][0] * side + world.MOVES[a][1] for i, a in enumerate(actions)]
    for i, target in enumerate(targets):
        if before[target] == world.HUB and carrying[i]:
            rewards[i], carrying[i] = 1.0, False
        elif target not in targets[:i] and before[target] == world.FREE:
            after[at[i]], after[target], at[i] = world.FREE, world.AGENT, target
        elif target not in targets[:i] and before[target] == world.ORE and not carrying[i]:
            carrying[i] = True
            mined.append(target)
    for k, cell in enumerate(w.extractors[env].tolist()):
        timer[k] = world.RECOVERY if cell in mined else max(0, timer[k] - 1)
        after[cell] = world.ORE if timer[k] == 0 else world.EMPTY
    return after, timer, at, carrying, rewards


def test_all_environments_at_once_follow_the_rules_of_one_agent_at_a_time(tmp_path: Path) -> None:
    w = world.World(["extractor_hub_30"], 2, 12, 64, 5, torch.device("cpu"))
    rng = np.random.default_rng(2)
    mined = delivered = 0
    for _ in range(160):
        actions = np.stack([teacher.numpy_act(rows) for rows in w.observe().numpy()]).astype(np.int64)
        actions = np.where(rng.random(actions.shape) < 0.2, rng.integers(0, 5, actions.shape), actions)
        expected = [step_by_hand(w, env, actions[env].tolist()) for env in range(2)]
        loaded = int(w.carrying.sum())
        rewards, due = w.step(torch.from_numpy(actions))
        for env, (cells, timer, at, carrying, gained) in enumerate(expected):
            assert (np.delete(w.cells[env].numpy(), world.NOWHERE) == np.delete(cells, world.NOWHERE)).all()
            assert (w.recovery[env].numpy() == timer).all()
            assert w.at[env].tolist() == at
            assert len(set(at)) == 12
            assert w.carrying[env].tolist() == carrying
            assert rewards[env].tolist() == gained
        delivered += int(rewards.sum())
        mined += int(w.carrying.sum()) - loaded + int(rewards.sum())
        if len(due):
            w.reset(due)
    assert mined > 40
    assert delivered > 20


def test_an_observation_shows_the_window_the_load_and_the_way_home() -> None:
    w = world.World(["extractor_hub_30", "extractor_hub_50"], 2, 4, 64, 0, torch.device("cpu"))
    seen = w.observe().numpy()
    side = int(w.cells.shape[1] ** 0.5)
    for env in range(2):
        grid = w.cells[env].numpy().reshape(side, side)
        hub = np.argwhere(grid == world.HUB).mean(0)
        for agent, place in enumerate(w.at[env].tolist()):
            y, x = divmod(place, side)
            part = grid[y - world.RADIUS : y + world.RADIUS + 1, x - world.RADIUS : x + world.RADIUS + 1]
            assert (seen[env, agent, : world.CELLS].reshape(part.shape) == part).all()
            assert (seen[env, agent, world.CELLS + 1 : world.CELLS + 3].astype(int) - 128 == hub - (y, x)).all()


def test_every_map_can_be_walked() -> None:
    rng = np.random.default_rng(0)
    for mission in world.MISSIONS.values():
        drawn = world.draw_map(mission, mission.size + 2 * world.RADIUS, mission.extractors, rng)
        assert (drawn.cells == world.ORE).sum() == mission.extractors
        assert (drawn.cells == world.HUB).sum() == 9


# ---- learning ----


def small(tmp_path: Path, *arguments: str) -> Settings:
    settings = Settings(out=str(tmp_path), device="cpu")
    apply_arguments(settings, ["evaluator.evaluate_local=False", *arguments])
    return settings


def test_what_is_stored_is_what_was_done(tmp_path: Path) -> None:
    """A reset once wrote into the stored actions: then the log-probabilities no longer belong to them."""
    settings = small(tmp_path, "world.max_steps=4", "trainer.num_envs=4", "trainer.batch_size=1024")
    trainer = Trainer(settings, torch.device("cpu"), tmp_path, tmp_path / "cache")
    trainer.phase = SUPERVISED
    trainer._collect()
    memory = trainer.memory
    with torch.no_grad():
        logits, values = trainer.student(memory.observations.flatten(0, 1))
    again = logits.log_softmax(1).gather(1, memory.actions.flatten()[:, None])[:, 0]
    assert torch.allclose(again, memory.log_probs.flatten(), atol=1e-5)
    assert torch.allclose(values, memory.values[:-1].flatten(), atol=1e-5)
    assert (memory.taught.flatten().numpy() == teacher.numpy_act(memory.observations.flatten(0, 1).numpy())).all()
    assert memory.dones.sum() == 32 // 4 * 4 * 8


def test_advantages_stop_at_the_end_of_an_episode() -> None:
    rewards, dones = torch.tensor([[0.0], [1.0], [0.0]]), torch.tensor([[0.0], [1.0], [0.0]])
    values = torch.tensor([[0.5], [0.25], [0.0], [2.0]])
    found = estimate_advantages(rewards, dones, values, gamma=0.5, trace=0.5).flatten()
    assert found.tolist() == pytest.approx([0 + 0.5 * 0.25 - 0.5 + 0.25 * (1 - 0.25), 1 - 0.25, 0.5 * 2.0])


def test_the_same_seed_gives_the_same_training_and_it_learns(tmp_path: Path) -> None:
    arguments = ["trainer.num_envs=16", "trainer.batch_size=4096", "trainer.total_timesteps=49_152", "supervised_steps=40_960"]
    rows = [metrics(train(small(tmp_path / name, *arguments))) for name in ("one", "two")]
    for first, second in zip(*rows, strict=True):
        assert {k: v for k, v in first.items() if k != "sps"} == {k: v for k, v in second.items() if k != "sps"}
    accuracy = [row["accuracy"] for row in rows[0] if row["phase"] == "supervised"]
    assert len(accuracy) == 10
    assert accuracy[-1] > accuracy[0] + 0.1
    assert [row["phase"] for row in rows[0][10:]] == ["ppo", "ppo"]
    assert all(0 <= row["divergence"] < 0.05 for row in rows[0][10:])
