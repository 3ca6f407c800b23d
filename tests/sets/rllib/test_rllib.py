"""RLlib and tianshou 2 under `hotloop run`: their scripts end as they do without it, and the session says what they did."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("script", ["rllib_ppo", "tianshou_dqn"])
def test_the_script_ends_as_without_us_and_the_reports_are_written(ran, script):
    pair = ran(script)
    pair.check()
    assert pair.recorded.stdout.splitlines()[-1] == pair.bare.stdout.splitlines()[-1]
    assert pair.report.counters["updates"] > 0


def later(script: str, reason: str) -> Any:
    """What does not hold yet; the test fails as soon as it does, so that this mark goes."""
    return pytest.param(script, marks=pytest.mark.xfail(strict=True, reason=reason))


@pytest.mark.parametrize(
    "script", [later("rllib_ppo", "ray ends its workers by a signal, which is called a death"), "tianshou_dqn"]
)
def test_no_process_that_ended_with_the_run_is_said_to_have_died(ran, script):
    assert ran(script).report.quality.died == ()


@pytest.mark.parametrize(
    "script",
    [
        later("rllib_ppo", "more steps are counted than RLlib counts"),
        later("tianshou_dqn", "the steps of the collector that tests are not told apart"),
    ],
)
def test_env_steps_are_those_the_library_counts(ran, script):
    pair = ran(script)
    steps = int(pair.recorded.stdout.split()[-1])
    assert pair.report.counters["env_steps"] == steps
