"""Low-level performance, counted in executed lines of Python instead of seconds: the same on every machine, under any load.

How many seconds they take is for `scripts/profile_turbo_mode.py`.
"""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

from petri import PlainNet, TurboNet, job_shop
from shop import PlainShops, Size, TurboShops, draw_orders


def count_lines(function: Any, *arguments: Any) -> int:
    """Lines of `petri.py` and `shop.py` that a call executes."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith(("petri.py", "shop.py")):
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return lines


def play(version: type, jobs: int) -> int:
    """Lines per decision of a whole schedule that always starts the first job it can."""
    orders = draw_orders(random.Random(2), Size(jobs, 5))
    net = version(job_shop(orders.machines, orders.durations, [1] * 5))
    decisions, lines = 0, 0
    while net.enabled():
        lines += count_lines(net.step, net.enabled()[0])
        decisions += 1
    return lines // decisions


def test_a_turbo_step_does_a_fraction_of_the_work() -> None:
    assert play(TurboNet, 6) * 2 < play(PlainNet, 6)


def test_the_work_of_a_turbo_step_hardly_grows_with_the_net() -> None:
    small, large = play(TurboNet, 4), play(TurboNet, 16)
    assert large < 2 * small
    assert play(PlainNet, 16) > 2 * play(PlainNet, 4)


def test_turbo_observes_the_whole_batch_at_once() -> None:
    observing = lambda version, shops: count_lines(version(shops, Size(6, 6), 1)._observe)
    assert observing(TurboShops, 32) < 2 * observing(TurboShops, 8) + 100
    assert observing(PlainShops, 32) > 3 * observing(PlainShops, 8)
