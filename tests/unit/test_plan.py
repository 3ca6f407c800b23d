"""Commands, schedules and plan files: what is read, and the one sentence for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotloop.errors import HotloopError, UnreadableError, UsageError
from hotloop.experiment.command import add_arguments, fill, parse_command, placeholders
from hotloop.experiment.copies import make_patched_copy
from hotloop.experiment.plan import parse_speedup, read_plan
from hotloop.experiment.runner import Arm
from hotloop.experiment.schedule import make_schedule
from hotloop.experiment.trials import Note, find_return, read_note, write_note

GOOD = """
name = "toy"
command = "python train.py --seed {seed}"
rounds = 6
margin = "3%"
unit = "env_steps"
environment = { OMP_NUM_THREADS = 1 }
[quick]
rounds = 2
arguments = "--steps 10"
[goals]
minimum = "5x"
stretch = 10
within = "2x"
expected_per_second = 4000
[[hypothesis]]
name = "batch push"
expected = "2-3x"
confidence = "High"
arguments = "--push batch"
[[sweep]]
name = "size"
grid = { envs = [32, 64], push = ["loop", "batch"] }
"""


def read(tmp_path: Path, text: str, quick: bool = False):
    file = tmp_path / "plan.toml"
    file.write_text(text)
    return read_plan(file, quick)


def test_a_command_is_words_and_never_a_shell():
    command = parse_command("python train.py --name 'a; rm -rf $HOME' && echo")
    assert command.words == ("train.py", "--name", "a; rm -rf $HOME", "&&", "echo")
    assert parse_command("python3.11 -m pkg.train -x").arguments == ["-m", "pkg.train", "-x"]
    assert parse_command("train.py").arguments == ["train.py"]
    assert fill(parse_command("t.py {n} {seed} {other}"), {"n": "a b", "seed": 1}).words == ("t.py", "a b", "1", "{other}")
    assert placeholders(parse_command("t.py --n={n} {seed}")) == {"n", "seed"}
    assert add_arguments(parse_command("t.py"), "--x 'y z'").text == "t.py --x 'y z'"


@pytest.mark.parametrize("text", ["", "python", "python -m", "train.py 'open", "python -u train.py", "/bin/python3 x.py"])
def test_a_command_that_cannot_be_run_is_one_sentence(text, tmp_path, monkeypatch):
    monkeypatch.setattr("os.path.exists", lambda path: path == "/bin/python3")
    with pytest.raises(UsageError) as error:
        parse_command(text)
    assert "\n" not in str(error.value)


def test_every_second_round_mirrors_the_one_before():
    slots = make_schedule(["base", "x", "y"], 6, seed=3)
    assert [slot.number for slot in slots] == list(range(1, 19))
    rounds = [[slot.arm for slot in slots if slot.round == k] for k in range(1, 7)]
    assert all(sorted(r) == ["base", "x", "y"] for r in rounds)
    assert all(rounds[k + 1] == rounds[k][::-1] for k in (0, 2, 4))
    assert make_schedule("AB", 8, 1)[: 2 * 4] == make_schedule("AB", 4, 1), "more rounds go on where fewer end"
    firsts = {make_schedule("AB", 2, seed)[0].arm for seed in range(20)}
    assert firsts == {"A", "B"}


def test_a_plan_is_read_whole(tmp_path):
    plan = read(tmp_path, GOOD)
    assert [v.name for v in plan.variants] == [
        "batch push", "size envs=32 push=loop", "size envs=32 push=batch", "size envs=64 push=loop", "size envs=64 push=batch",
    ]  # fmt: skip
    assert plan.variants[0].command.words == ("train.py", "--seed", "{seed}", "--push", "batch")
    assert plan.variants[0].expected == (2.0, 3.0)
    assert plan.variants[4].command.words[-4:] == ("--envs", "64", "--push", "batch")
    assert plan.baseline.environment == {"OMP_NUM_THREADS": "1"}
    assert (plan.rounds, plan.margin, plan.unit) == (6, 0.03, "env_steps")
    assert (plan.goals.minimum, plan.goals.stretch, plan.goals.within) == (5.0, 10.0, 2.0)
    quick = read(tmp_path, GOOD, quick=True)
    assert quick.rounds == 2
    assert quick.baseline.command.words[-2:] == ("--steps", "10")


def test_the_plans_of_the_examples_can_be_read():
    folder = Path(__file__).resolve().parents[2] / "examples" / "snake_dqn"
    plan = read_plan(folder / "investigation.toml")
    assert {v.name: v.expected for v in plan.variants}["2 training steps 64 to 4"] == (10.0, 15.0)
    assert (plan.goals.minimum, plan.goals.stretch, plan.goals.within) == (5.0, 10.0, 2.0)
    assert plan.folder == folder
    assert len(read_plan(folder / "investigation_flood_fill.toml", quick=True).variants) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("command =", "comand ="), "unknown key 'comand'"),
        (('command = "python train.py --seed {seed}"', ""), "no command"),
        (('"2-3x"', '"much"'), "no speed-up"),
        (('"High"', '"certain"'), "none of low, medium, high"),
        (("rounds = 6", "rounds = 0"), "whole number"),
        (("rounds = 6", 'rounds = "six"'), "whole number"),
        (('margin = "3%"', 'margin = "300%"'), "no percentage"),
        (('arguments = "--push batch"', 'patch = "none.patch"'), "does not exist"),
        (('arguments = "--push batch"', ""), "changes nothing"),
        (('arguments = "--push batch"', 'arguments = "--push \'batch"'), "close the quotes"),
        (('arguments = "--push batch"', 'arguments = "--n {n}"'), "nothing is known for {n}"),
        (('name = "batch push"', ""), "has no name"),
        (('name = "batch push"', 'name = "baseline"'), "used twice"),
        (("grid = { envs = [32, 64]", "grid = { envs = 32"), "grid of lists"),
        (("expected_per_second = 4000", ""), "within needs expected_per_second"),
        (('minimum = "5x"', 'minimum = "5-6x"'), "no number"),
        (("[[hypothesis]]", "[hypothesis]"), "must be written [[hypothesis]]"),
        (('name = "toy"', 'name = "toy"\ndirectory = "nowhere"'), "does not exist"),
        (('name = "toy"', "name = 3"), "text in quotes"),
        (('name = "toy"', "name = "), "not valid TOML"),
    ],
)
def test_a_bad_plan_is_one_sentence_that_names_the_file(tmp_path, change, says):
    assert change[0] in GOOD
    with pytest.raises(HotloopError) as error:
        read(tmp_path, GOOD.replace(*change, 1))
    text = str(error.value)
    assert says in text
    assert "plan.toml" in text
    assert "\n" not in text


def test_a_plan_that_is_not_there_or_tests_nothing_is_one_sentence(tmp_path):
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="nothing to test"):
        read(tmp_path, 'command = "train.py"')
    with pytest.raises(UsageError, match="not valid TOML"):
        (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
        read_plan(tmp_path / "plan.toml")
    grid = ", ".join(str(i) for i in range(30))
    with pytest.raises(UsageError, match="more than 200"):
        read(tmp_path, f'command = "t.py"\n[[sweep]]\ngrid = {{ a = [{grid}], b = [{grid}] }}')


def test_speedups_are_read_as_people_write_them():
    assert parse_speedup("10–15x") == (10.0, 15.0)
    assert parse_speedup("1.5 to 2 x") == (1.5, 2.0)
    assert [parse_speedup(x) for x in ("x", "-2", "3-2x", True, None, "0")] == [None] * 6


def test_a_patch_goes_to_a_copy_and_one_that_does_not_fit_is_one_sentence(tmp_path):
    source = tmp_path / "source"
    (source / "runs").mkdir(parents=True)
    (source / "a.txt").write_text("one\ntwo\n")
    patch = tmp_path / "fix.patch"
    patch.write_text("--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n")
    copy = make_patched_copy(source, patch, tmp_path / "copy")
    assert (copy / "a.txt").read_text() == "one\nthree\n"
    assert (source / "a.txt").read_text() == "one\ntwo\n"
    assert not (copy / "runs").exists()
    (source / "a.txt").write_text("else\n")
    with pytest.raises(UsageError, match="does not fit") as error:
        make_patched_copy(source, patch, tmp_path / "again")
    assert "\n" not in str(error.value)


def test_a_note_is_read_back_and_anything_else_is_none(tmp_path):
    note = Note("e", "A", 1, 2, 3, "ok", "", "f", 1.5, 2.0)
    write_note(tmp_path / "s", note)
    assert read_note(tmp_path / "s") == note
    (tmp_path / "s" / "trial.json").write_text('{"arm": 7}')
    assert read_note(tmp_path / "s") is None
    assert read_note(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("return=1.5", 1.5), ("mean_reward: -3e2", -300.0), ("| ep_rew_mean | 20.5 |", 20.5), ("return  -1.585", -1.585),
        ("step 1 score 2\nstep 2 score 3.5 loss 1", 3.5), ("returned 3 items", None), ("return over 200 episodes", None),
        ("", None), ("reward=nan", None), ("return=1.2.3", None),
    ],
)  # fmt: skip
def test_the_last_printed_return_is_found(text, value):
    assert find_return(text) == value


def test_what_is_run_has_a_fingerprint(tmp_path):
    base = Arm("a", parse_command("t.py"), tmp_path)
    others = [
        Arm("a", parse_command("t.py -x"), tmp_path),
        Arm("a", base.command, tmp_path, {"X": "1"}),
        Arm("a", base.command, tmp_path, patch=b"x"),
    ]
    assert len({arm.fingerprint for arm in (base, *others)}) == 4
