"""gymnasium 0.29 and what goes with it, under `hotloop run`."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("script", ["vector_steps", "zoo_ppo", "factory_appo"])
def test_the_script_runs_to_its_end_and_the_reports_are_written(ran, script):
    ran(script).check()


def test_the_steps_of_a_vector_environment_are_exact(ran):
    pair = ran("vector_steps")
    assert pair.recorded.stdout == pair.bare.stdout
    words = pair.recorded.stdout.split()
    assert pair.report.counters["env_steps"] == int(words[1])
    assert pair.report.counters["episodes"] == int(words[3])


@pytest.mark.parametrize("script", ["vector_steps", "zoo_ppo", "factory_appo"])
def test_no_process_that_ended_with_the_run_is_said_to_have_died(ran, script):
    assert ran(script).report.quality.died == ()
