"""Turbo in training: it changes the time and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from arms import record_arm, write_functions
from comparison import read_session
from env import PetriEnv
from settings import Settings
from shop import Size
from torchrl.envs import ActionMask, TransformedEnv
from torchrl.envs.utils import check_env_specs
from train import Trainer, at_random, make_shops, most_work_left, play

SMALL = Settings(batches=2, frames_per_batch=128, shops=8, jobs=3, machines=3, epochs=2, minibatch=64, hidden=16, device="cpu")


def trained(turbo: bool) -> tuple[list[float], list[torch.Tensor]]:
    trainer = Trainer(replace(SMALL, turbo=turbo))
    finished = [x for _ in range(3) for x in trainer.batch()]
    return finished, [parameter.detach() for parameter in trainer.parameters]


def test_training_with_and_without_turbo_ends_in_the_same_network() -> None:
    (plain, plain_weights), (turbo, turbo_weights) = trained(False), trained(True)
    assert len(plain) > 10
    assert plain == turbo
    assert all(torch.equal(a, b) for a, b in zip(plain_weights, turbo_weights, strict=True))


def test_learning_changes_every_layer() -> None:
    trainer = Trainer(SMALL)
    before = [parameter.detach().clone() for parameter in trainer.parameters]
    trainer.batch()
    assert all(not torch.equal(a, b) for a, b in zip(before, trainer.parameters, strict=True))


@pytest.mark.parametrize("turbo", [False, True])
def test_the_environment_keeps_its_word_to_torchrl(turbo: bool) -> None:
    check_env_specs(TransformedEnv(PetriEnv(turbo, 4, Size(3, 3), seed=1), ActionMask()))


def test_a_partial_reset_leaves_the_other_shops_alone() -> None:
    env = PetriEnv(True, 3, Size(3, 3), seed=1)
    first = env.reset()
    state = env.step(first.set("action", torch.zeros(3, dtype=torch.int64)))["next"]
    asked = torch.tensor([[True], [False], [False]])
    after = env.reset(state.clone().set("_reset", asked))
    assert torch.equal(after["observation"][1:], state["observation"][1:])
    assert not torch.equal(after["observation"][0], state["observation"][0])


def test_the_textbook_rule_beats_chance() -> None:
    fresh = lambda: make_shops(True, 8, Size(), seed=4)
    assert play(fresh(), most_work_left, 60) < play(fresh(), at_random(0), 60) - 0.2


def test_an_arm_is_a_session_whose_books_close(tmp_path: Path) -> None:
    arm = read_session(record_arm(SMALL, tmp_path / "runs"))
    assert arm.env_steps == 2 * 128, "the warm-up batch is not part of it"
    assert sum(ns for path, ns in arm.tree.items() if len(path) == 1) == arm.wall
    for path, ns in arm.tree.items():
        parts = [arm.tree[p] for p in arm.children_of(path)]
        assert not parts or sum(parts) == ns, path
    collection = {path[-1] for path in arm.children_of(("data_collection",))}
    assert {"env_step", "policy_forward", "tensordict_ops", "env_reset"} <= collection
    assert sum(arm.owners.values()) == pytest.approx(arm.wall, rel=1e-6)
    assert {"RL framework", "tensor runtime", "your code"} <= set(arm.owners)


def test_the_function_level_file_names_the_framework_and_the_hierarchy(tmp_path: Path) -> None:
    file = tmp_path / "functions.txt"
    write_functions(SMALL, file)
    text = file.read_text()
    assert "Top 50 functions by cumulative time" in text
    assert "was called by..." in text
    assert "called..." in text
    assert "step_and_maybe_reset" in text
