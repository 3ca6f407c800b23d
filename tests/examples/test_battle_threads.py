"""Seed 002 alive: the battles, both servers, every command of the document, and shares that close with eight threads."""

from __future__ import annotations

import copy
import importlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "battle_threads"
METRICS = {
    "env_reset", "env_step", "env_parallel_execution", "gradient_calculation", "optimizer_step", "loss_calculation",
    "agent_action_selection", "agent_value_calculation",
}  # fmt: skip
SHOWDOWN = os.environ.get("SHOWDOWN_DIR", "")


def _import_example() -> SimpleNamespace:
    """The example's modules; its folder does not stay on the path, where `src` and `train` would be found by others."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        names = ("agent", "client", "dex", "rules", "server", "settings", "view")
        return SimpleNamespace(**{name: importlib.import_module(f"battle.{name}") for name in names})
    finally:
        sys.path.remove(str(EXAMPLE))


b = _import_example()


def run(folder: Path, *command: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=900, encoding="utf-8")
    assert done.returncode == rc, done.stderr + done.stdout
    if rc == 0:
        assert done.stderr == ""
    return done


def train(folder: Path, *flags: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
    return run(folder, str(EXAMPLE / "train.py"), *flags, rc=rc)


def report(folder: Path, name: str) -> dict:
    (session,) = (folder / "runs").glob(f"{name}-*")
    return json.loads(run(folder, "-m", "hotloop", "report", str(session), "--json").stdout)


def rates(output: str) -> list[str]:
    return re.findall(r"^episode.*win rate +([\d.]+)%", output, re.MULTILINE)


# ---- the rules ----


def fighter(species: str, *moves: str) -> dict:
    return {"species": species, "moves": list(moves)}


def battle(ours: list[dict], theirs: list[dict], seed: str = "1"):
    return b.rules.Battle(seed, {"name": "agent", "team": ours}, {"name": "opponent", "team": theirs})


def view_of(lines: list[str]):
    view = b.view.View("agent")
    view.read("\n".join(lines))
    return view


def test_types_that_do_not_affect_each_other_do_no_harm():
    game = battle([fighter("Raichu", "thunderbolt")], [fighter("Golem", "powergem")])
    game.begin()
    before = game.p2.active.hp
    lines = game.play("move 1")
    assert "|-immune|p2a: Golem" in lines
    assert game.p2.active.hp == before


def test_a_hit_takes_85_to_100_percent_of_the_full_damage():
    full = b.dex.full_damage("Raichu", "thunderbolt", "Lapras")
    # by hand: base 22 * 90 * 110 // 115 // 50 + 2 = 39, half as much again for its own type, twice against Water
    assert full == 39 * 1.5 * 2
    taken = set()
    for seed in range(60):
        game = battle([fighter("Raichu", "thunderbolt")], [fighter("Lapras", "surf")], str(seed))
        game.begin()
        before = game.p2.active.hp
        game.play("move 1")
        taken.add(before - game.p2.active.hp)
    assert min(taken) >= int(0.85 * full)
    assert max(taken) <= full
    assert len(taken) > 5


def test_the_faster_one_strikes_first_and_a_switch_comes_before_every_move():
    game = battle([fighter("Golem", "earthquake"), fighter("Tauros", "bodyslam")], [fighter("Raichu", "bodyslam")])
    game.begin()
    moves = [line for line in game.play("move 1") if line.startswith("|move|")]
    assert moves[0].startswith("|move|p2a: Raichu|")
    game = battle([fighter("Golem", "earthquake"), fighter("Tauros", "bodyslam")], [fighter("Raichu", "bodyslam")])
    game.begin()
    lines = game.play("switch 2")
    assert lines[0].startswith("|switch|p1a: Tauros|")
    assert lines[1].startswith("|move|p2a: Raichu|")


def test_whoever_faints_is_replaced_and_the_last_one_decides():
    game = battle([fighter("Raichu", "thunderbolt"), fighter("Tauros", "bodyslam")], [fighter("Golem", "earthquake")])
    game.begin()
    view = view_of(game.play("move 1"))
    while game.p1.active.hp:
        view = view_of(game.play("move 1"))
    assert view.request["forceSwitch"] == [True]
    assert [view.choice(i) for i, allowed in enumerate(view.mask()) if allowed] == ["switch 2"]
    with pytest.raises(b.rules.BadChoiceError):
        game.play("move 1")
    game.play("switch 2")
    while not game.over:
        lines = game.play("move 1")
    assert lines[-1] == ("|win|opponent" if game.p1.beaten() else "|win|agent")
    with pytest.raises(b.rules.BadChoiceError, match="over"):
        game.play("move 1")


def test_moves_run_out_and_then_one_struggles():
    game = battle([fighter("Golem", "energyball")], [fighter("Golem", "energyball")])
    game.begin()
    game.p1.active.pp[0] = 1
    game.p1.active.hp = game.p2.active.hp = 10_000
    view = view_of(game.play("move 1"))
    assert [move["id"] for move in view.request["active"][0]["moves"]] == ["struggle"]
    assert view.mask()[:4] == [True, False, False, False]
    before = game.p1.active.hp
    lines = game.play("move 1")
    assert any(line.startswith("|move|p1a: Golem|Struggle") for line in lines)
    assert game.p1.active.hp <= before - game.p1.active.species.max_hp // 4


@pytest.mark.parametrize("seed", range(25))
def test_masks_say_exactly_what_the_server_accepts(seed):
    luck = random.Random(seed)
    game = battle(b.dex.draw_team(luck), b.dex.draw_team(luck), str(seed))
    view = b.view.View("agent")
    view.read("\n".join(game.begin()))
    for _ in range(300):
        mask, observation = view.mask(), view.observe()
        assert len(mask) == b.view.ACTIONS
        assert len(observation) == b.view.FEATURES
        assert all(0 <= x <= 2 for x in observation)
        assert any(mask)
        for action, allowed in enumerate(mask):
            trial = copy.deepcopy(game)
            if allowed:
                trial.play(view.choice(action))
            else:
                with pytest.raises(b.rules.BadChoiceError):
                    trial.play(view.choice(action))
        view.read("\n".join(game.play(view.choice(luck.choice([i for i, ok in enumerate(mask) if ok])))))
        if view.ended:
            break
    assert view.ended
    assert view.won == game.p2.beaten()
    assert view.mask() == [False] * b.view.ACTIONS


# ---- the server and its client ----


@pytest.fixture(scope="module")
def server():
    with b.client.BattleServer("python") as running:
        yield running


def play_random(env, seed: int) -> list:
    luck, trace = random.Random(seed), []
    observation, mask = env.reset(seed)
    while True:
        action = luck.choice([i for i, allowed in enumerate(mask) if allowed])
        observation, reward, terminated, truncated, info, mask = env.step(action)
        trace.append((action, tuple(observation), reward, terminated, truncated, info["won"]))
        if terminated or truncated:
            return trace


def test_the_same_seed_is_the_same_battle_on_any_connection(server):
    one, other = (b.client.BattleEnv(server.address, 100, 0.5) for _ in range(2))
    traces = [play_random(one, 7), play_random(other, 8), play_random(other, 7)]
    one.close()
    other.close()
    assert traces[0] == traces[2] != traces[1]
    assert traces[0][-1][3]
    last_reward, won = traces[0][-1][2], traces[0][-1][5]
    assert (last_reward > 0) == won


def test_a_battle_is_cut_off_after_so_many_turns(server):
    env = b.client.BattleEnv(server.address, 3, 0.5)
    trace = play_random(env, 1)
    env.close()
    assert [step[3:5] for step in trace] == [(False, False), (False, False), (False, True)]


def test_nonsense_is_refused_and_the_connection_goes_on(server):
    from websockets.sync.client import connect

    def answer(text):
        link.send(text)
        return link.recv(timeout=20)

    with connect(server.address, compression=None, proxy=None) as link:
        for text in (
            "", "x", ">p1 move 1", ">eval 1", ">start {", ">start []", ">start {}", b"\xff", ">start " + "[" * 5000,
            '>start {}\n>player p1 {"team": [{"species": "Nobody", "moves": []}]}', '>start {}\n>player p3 {}',
        ):  # fmt: skip
            first, second = answer(text).split("\n")
            assert re.fullmatch(r"\|server\|\d+", first)
            assert second.startswith("|error|"), text
        teams = [json.dumps({"name": n, "team": b.dex.draw_team(random.Random(1))}) for n in ("agent", "opponent")]
        begin = answer(f'>start {{"seed": "1"}}\n>player p1 {teams[0]}\n>player p2 {teams[1]}')
        assert "|request|" in begin
        for choice in ("move 0", "move 5", "move -1", "move", "switch 1", "switch 9", "dance 1", "move ²"):
            assert "|error|" in answer(f">p1 {choice}"), choice
        assert "|move|p1a: " in answer(">p1 move 1")


def test_a_server_that_goes_away_is_one_sentence():
    with b.client.BattleServer("python") as short:
        env = b.client.BattleEnv(short.address, 100, 0.5)
        env.reset(1)
    with pytest.raises(b.client.ServerGoneError, match="closed the connection"):
        play_random(env, 1)
    env.close()
    assert short.process.returncode == 0
    with pytest.raises(b.client.ServerGoneError, match="no battle server answers"):
        b.client.BattleEnv(short.address, 100, 0.5)


def test_the_server_does_not_outlive_a_killed_trainer(tmp_path):
    code = f"""
import sys, time
sys.path.insert(0, {str(EXAMPLE)!r})
from battle.client import BattleServer
print(BattleServer("python").address, flush=True)
time.sleep(60)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    port = int(owner.stdout.readline().rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port), 10).close()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 10).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.05)
    pytest.fail("the server still listens")


# ---- the agent ----


def test_what_is_masked_is_never_chosen():
    torch.manual_seed(0)
    agent = b.agent.Agent(8, 1e-3, torch.device("cpu"))
    mask = [False, True, False, False, True, False]
    luck = random.Random(0)
    drawn = {agent.select_action([0.1] * b.view.FEATURES, mask, luck)[0] for _ in range(200)}
    assert drawn == {1, 4}


def test_advantages_by_hand():
    episode = b.agent.Episode(rewards=[0.0, 1.0], values=[0.5, 0.25])
    # last: 1 - 0.25; first: 0 + 0.9 * 0.25 - 0.5 + 0.9 * 0.5 * 0.75
    assert b.agent.advantages_of(episode, 0.9, 0.5) == pytest.approx([0.0625, 0.75])
    episode.last_value = 2.0  # cut off: what would have come counts
    assert b.agent.advantages_of(episode, 0.9, 0.5)[1] == pytest.approx(1 + 0.9 * 2 - 0.25)


def test_the_buffer_keeps_the_latest_transitions():
    agent = b.agent.Agent(8, 1e-3, torch.device("cpu"))
    episode = b.agent.Episode()
    for i in range(5):
        episode.add([float(i)] * b.view.FEATURES, [True] * b.view.ACTIONS, i, -1.0, 0.0, 0.0)
    settings = b.agent.LearningSettings(0.9, 0.9, 0.2, 0.0, 1, 2, buffer_capacity=3)
    assert b.agent.make_batch(agent, [episode], settings).actions.tolist() == [2, 3, 4]


# ---- settings ----


def test_flags_win_over_the_file_and_the_file_over_the_defaults(tmp_path):
    file = tmp_path / "my.yml"
    file.write_text("episodes: 7\nbatch_size: 99\nprofile: true\nlearning_rate: 1\n")
    settings = b.settings.read_settings(["--config", str(file), "--episodes", "8", "--no-profile"])
    assert (settings.episodes, settings.batch_size, settings.profile) == (8, 99, False)
    assert settings.buffer_capacity == b.settings.Settings().buffer_capacity


def test_the_shipped_file_says_what_the_defaults_say():
    shipped = b.settings.read_file(EXAMPLE / "config" / "train_config.yml")
    assert {key: getattr(b.settings.Settings(), key) for key in shipped} == shipped


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("episods: 3\n", "unknown settings: episods"),
        ("episodes: many\n", "must be of type int, not 'many'"),
        ("episodes: true\n", "must be of type int"),
        ("threads: 0\n", "from 1 to 256"),
        ("gamma: .nan\n", "from 0 to 1"),
        ("server: moon\n", "one of python, showdown"),
        ("- 1\n", "must hold"),
        ("a: [\n", "is not YAML"),
        ("!!python/object/apply:os.system ['true']\n", "is not YAML"),
    ],
)
def test_bad_settings_are_one_sentence(tmp_path, text, says):
    file = tmp_path / "bad.yml"
    file.write_text(text)
    with pytest.raises(b.settings.BadSettingsError, match=re.escape(says)) as caught:
        b.settings.read_settings(["--config", str(file)])
    assert "\n" not in str(caught.value)


def test_an_unknown_key_ends_the_command_with_code_2(tmp_path):
    (tmp_path / "bad.yml").write_text("bogus: 1\n")
    done = train(tmp_path, "--config", "bad.yml", rc=2)
    assert done.stderr.count("\n") == 1
    assert "unknown settings: bogus" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.yml"]


def test_without_the_simulator_its_absence_is_one_sentence(tmp_path):
    with pytest.raises(b.settings.BadSettingsError, match=r"npm install pokemon-showdown|no `node` on the PATH"):
        b.client.BattleServer("showdown", str(tmp_path))


# ---- the document's commands ----


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """`python train.py --profile --profile-name session_name`, eight threads, long enough to learn."""
    folder = tmp_path_factory.mktemp("learned")
    done = train(folder, "--profile", "--profile-name", "session_name", "--episodes", "900", "--curve", "curve.png")
    return folder, done.stdout


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    folder = tmp_path_factory.mktemp("single")
    done = train(folder, "--threads", "1", "--episodes", "128", "--profile", "--profile-name", "one")
    return folder, done.stdout


def test_the_documents_example_writes_the_documents_files(tmp_path):
    done = train(tmp_path, "--device", "cpu", "--episodes", "10", "--profile", "--profile-name", "debug_test")
    (raw,) = (tmp_path / "logs/profiling/raw").iterdir()
    (text,) = (tmp_path / "logs/profiling/reports").iterdir()
    assert re.fullmatch(r"debug_test_\d{8}_\d{6}\.json", raw.name)
    assert text.name == f"{raw.stem}_summary.txt"
    summary = json.loads(raw.read_text())["summary"]
    assert set(summary["operations"]) >= METRICS | {"env_send", "env_server_wait", "env_parse"}
    counters, operations = summary["counters"], summary["operations"]
    assert counters["episodes"] == counters["resets"] == operations["env_reset"]["call_count"] == 10
    assert counters["env_steps"] == operations["env_step"]["call_count"] == operations["agent_action_selection"]["call_count"]
    assert counters["updates"] == operations["optimizer_step"]["call_count"]
    assert counters["samples"] == 4 * counters["env_steps"]  # four epochs
    assert counters["server_us"] <= 1e6 * operations["env_server_wait"]["total_time"]
    for part in (
        "PERFORMANCE SUMMARY (per episode)", "Total Episode Time:", "Environment Operations:", "  Reset:", "  Step:",
        "Learning Operations:", "  Gradient Calculation:", "  Optimizer Step:", "Agent Operations:", "  Action Selection:",
        "  Value Calculation:", "SYSTEM RESOURCE USAGE", "Peak Memory", "Average CPU Usage:", "NETWORK", "Server (its",
    ):  # fmt: skip
        assert part in text.read_text(), part
        assert part in done.stdout, part
    assert f"next: hotloop report {Path('runs')}" in done.stdout


def test_the_agent_learns(learned):
    folder, output = learned
    first, last, chance = map(
        float, re.search(r"first tenth ([\d.]+)%, last tenth ([\d.]+)%, random player ([\d.]+)%", output).groups()
    )
    assert last > first + 20
    assert last > chance + 25
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("which", ["learned", "single"])
def test_the_books_close_on_one_and_on_eight_threads(which, request):
    folder, output = request.getfixturevalue(which)
    data = report(folder, {"learned": "session_name", "single": "one"}[which])
    rows = data["balance"]
    for i, row in enumerate(rows):
        children = [other["ns"] for other in rows if other["parent"] == i]
        assert not children or sum(children) == row["ns"]
    assert rows[0]["share"] == 1.0
    assert data["coverage"] >= 0.8  # 0.95 is a bar of benchmarks/examples.py: a busy machine adds to the rest
    assert all(operation["share"] <= 1 for operation in data["operations"])
    shares = [float(x) for x in re.findall(r"\((\d+\.\d)%\)", output)]
    assert len(shares) > 15
    assert max(shares) <= 100.0
    spans = data["quality"]["recorded"]
    assert spans * 64e-9 <= 0.01 * data["wall_s"]


def test_eight_threads_are_thread_time_and_never_more_than_the_wall(learned):
    folder, output = learned
    data = report(folder, "session_name")
    step = next(o for o in data["operations"] if o["name"] == "env_step")
    assert step["union_s"] <= data["wall_s"]
    assert step["busy_s"] > step["union_s"]
    assert 1 < step["concurrency"] <= 8
    assert re.search(r"Step: .*\[inside env_parallel_execution; .*s of thread time, \d\.\d at once\]", output)
    assert data["counters"]["env_steps"] == step["calls"]  # every thread's steps, not those of one environment


def test_the_optimizers_step_is_not_counted_twice(learned):
    folder, output = learned
    data = report(folder, "session_name")
    rows = data["balance"]
    names = {row["name"]: i for i, row in enumerate(rows)}
    gradient = names["gradient_calculation"]
    assert rows[names["optimizer_step"]]["parent"] == rows[names["loss_calculation"]]["parent"] == gradient
    top = [row for row in rows if row["parent"] == 0]
    assert sum(row["ns"] for row in top) == data["balance"][0]["ns"]
    assert "optimizer_step" not in {row["name"] for row in top}
    assert re.search(r"Optimizer Step: .*\[inside gradient_calculation\]", output)


def test_the_network_is_told_apart_below_env_step(learned):
    rows = report(learned[0], "session_name")["balance"]
    step = next(i for i, row in enumerate(rows) if row["name"] == "env_step")
    parts = {row["name"] for row in rows if row["parent"] == step}
    assert {"env_send", "env_server_wait", "env_parse"} <= parts
    text = learned[1].partition("NETWORK")[2]
    assert sum(float(x) for x in re.findall(r"\((\d+\.\d)%\)", text)) == pytest.approx(100, abs=0.3)


def test_the_number_of_threads_does_not_change_what_is_learned(learned, single):
    assert rates(single[1]) == rates(learned[1])[:2]


def test_the_documents_code_runs_verbatim(tmp_path):
    shutil.copytree(EXAMPLE / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "snippet.py").write_text(
        """
import hotloop
enable_profiling = True
class Env:
    def step(self, actions): return 1, 2, 3, 4, 5, 6
env, actions = Env(), [0]

from src.profiling import get_global_profiler

profiler = get_global_profiler() if enable_profiling else None
profiler.enable()
if profiler:
    with profiler.profile('env_step'):
        observations, rewards, terms, truncs, _, next_masks = env.step(actions)
else:
    observations, rewards, terms, truncs, _, next_masks = env.step(actions)
assert profiler is hotloop.get_profiler()
print(profiler.summary()["operations"]["env_step"]["call_count"])
"""
    )
    assert run(tmp_path, "snippet.py").stdout == "1\n"


def test_the_last_sessions_stand_side_by_side(learned, single, tmp_path):
    raw = tmp_path / "logs/profiling/raw"
    raw.mkdir(parents=True)
    for folder in (learned[0], single[0]):
        shutil.copytree(folder / "logs/profiling/raw", raw, dirs_exist_ok=True)
        shutil.copytree(folder / "runs", tmp_path / "runs", dirs_exist_ok=True)
    done = run(tmp_path, str(EXAMPLE / "compare_sessions.py"))
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    assert set(lines) >= METRICS
    assert "session_name_" in done.stdout
    assert "one_" in done.stdout
    assert all(float(x) <= 100 for x in re.findall(r"s +([\d.]+)%", done.stdout))
    assert lines["episodes"].split()[1:] == (
        ["900", "128"] if done.stdout.index("session_name_") < done.stdout.index("one_") else ["128", "900"]
    )
    (raw / "broken.json").write_text("{")
    broken = subprocess.run(
        [sys.executable, str(EXAMPLE / "compare_sessions.py"), "--last", "1"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (broken.returncode, broken.stderr.count("\n")) == (0, 1)
    assert "broken.json" in broken.stderr
    listed = run(tmp_path, "-m", "hotloop", "list").stdout
    assert "session_name-" in listed
    assert "one-" in listed
    nothing = run(tmp_path, str(EXAMPLE / "compare_sessions.py"), "--folder", "nowhere", rc=3)
    assert "record one" in nothing.stderr


# ---- the real simulator ----

needs_showdown = pytest.mark.skipif(
    not SHOWDOWN or shutil.which("node") is None,
    reason="needs Node.js, and SHOWDOWN_DIR naming a folder where `npm install pokemon-showdown` was run",
)


@pytest.mark.full
@needs_showdown
def test_our_dex_is_the_simulators():
    asked = {"species": list(b.dex.SPECIES), "moves": list(b.dex.MOVES), "types": list(b.dex.TYPES)}
    code = """
const {Dex} = require(require.resolve('pokemon-showdown', {paths: [process.argv[1]]}));
const asked = JSON.parse(process.argv[2]);
console.log(JSON.stringify({
  species: asked.species.map(n => Dex.species.get(n)).map(s => [s.name, s.types, Object.values(s.baseStats)]),
  moves: asked.moves.map(n => Dex.moves.get(n)).map(
    m => [m.name, m.type, m.category === 'Physical', m.basePower, m.pp, m.accuracy]),
  chart: asked.types.map(a => asked.types.map(d => Dex.getImmunity(a, d) ? 2 ** Dex.getEffectiveness(a, d) : 0)),
}));
"""
    done = subprocess.run(["node", "-e", code, SHOWDOWN, json.dumps(asked)], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    assert theirs["species"] == [[s.name, list(s.types), list(s.base)] for s in b.dex.SPECIES.values()]
    assert theirs["moves"] == [[m.name, m.type, m.physical, m.power, m.pp, 100] for m in b.dex.MOVES.values()]
    assert theirs["chart"] == [list(row) for row in b.dex.CHART]


@pytest.mark.full
@needs_showdown
def test_the_real_simulator_is_played_by_the_same_client(tmp_path):
    with b.client.BattleServer("showdown", SHOWDOWN) as server:
        env = b.client.BattleEnv(server.address, 200, 0.5)
        traces = [play_random(env, seed) for seed in (3, 4, 3)]
        env.close()
    assert traces[0] == traces[2] != traces[1]
    assert all(trace[-1][3] for trace in traces)
    flags = ("--server", "showdown", "--showdown-dir", SHOWDOWN, "--episodes", "64", "--profile", "--profile-name", "real")
    done = train(tmp_path, *flags)
    data = report(tmp_path, "real")
    assert data["coverage"] >= 0.8  # 0.95 is a bar of benchmarks/examples.py: a busy machine adds to the rest
    assert data["counters"]["episodes"] == 64
    assert data["counters"]["server_us"] > 0
    assert max(float(x) for x in re.findall(r"\((\d+\.\d)%\)", done.stdout)) <= 100.0
