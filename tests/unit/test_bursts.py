"""Env steps that come in bursts, between few of the updates: how an evaluation is told from collecting."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hotloop.analyse.findings.causes.eval_heavy import steps_in_bursts


def evidence(*steps: int, merged: int = 1) -> SimpleNamespace:
    rows = [SimpleNamespace(counts={"env_steps": n * merged}, merged=merged) for n in steps]
    return SimpleNamespace(diagnosis=SimpleNamespace(learner=SimpleNamespace(iterations=rows)))


@pytest.mark.parametrize("merged", [1, 7])
@pytest.mark.parametrize(
    ("steps", "bursts"),
    [
        (([2] * 19 + [300]) * 5, True),
        ([2] * 100, False),  # the same in each iteration
        ([500] + [2] * 99, False),  # a buffer is filled first
        (([2] * 3 + [300]) * 25, False),  # in every fourth: that is how it collects
        (([0] * 19 + [300]) * 5, False),  # it collects, then learns for a while
        ([], False),
    ],
    ids=["evaluation", "even", "once", "often", "in turns", "none"],
)
def test_bursts_are_many_steps_in_few_iterations_again_and_again(steps, bursts, merged):
    assert steps_in_bursts(evidence(*steps, merged=merged)) == bursts
