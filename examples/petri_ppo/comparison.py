"""The text of one arm and of two: the component breakdown, the ownership line, the comparison.

What lives here: HotLoop's reports in, plain text out, in the layout of the guide this example follows. Invariant: every
percentage of an arm has one denominator, that arm's wall time, and the rows of a level add up to the row above; what no span
explains is a row called "Unattributed". Seconds are means over the sessions of an arm.
"""

from __future__ import annotations

import io
import json
import runpy
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from textwrap import fill
from typing import Any

# In the order of the guide; other labels follow.
TITLES = {
    "data_collection": "Data Collection", "env_step": "Env Step", "policy_forward": "Policy Forward",
    "tensordict_ops": "TensorDict Ops", "env_reset": "Env Reset", "choose_action": "Choose Action",
    "gae_computation": "GAE Computation", "replay_buffer_ops": "Replay Buffer Ops", "training_loop": "Training Loop",
    "loss_computation": "Loss Computation", "backward_pass": "Backward Pass", "optimizer_step": "Optimizer Step",
    "gradient_clipping": "Gradient Clipping", "network_forward": "Network Forward", "torchrl": "TorchRL",
    "unattributed": "Unattributed", "profiler": "Profiler",
}  # fmt: skip
LEAST_PAIRS = 5  # for an interval and a verdict; fewer are described
_ORDER = {label: i for i, label in enumerate(TITLES)}
Labels = tuple[str, ...]  # labels from the top of the tree down


@dataclass(frozen=True, slots=True)
class Measured:
    """One session, or the sum of several of the same arm; times in nanoseconds."""

    sessions: int
    wall: int
    tree: dict[Labels, int]
    owners: dict[str, int]
    env_steps: int

    def children_of(self, path: Labels) -> list[Labels]:
        found = [p for p in self.tree if len(p) == len(path) + 1 and p[: len(path)] == path]
        return sorted(found, key=lambda p: _ORDER.get(p[-1], len(_ORDER) - 2.5))

    def seconds(self, path: Labels) -> float:
        return self.tree.get(path, 0) / 1e9 / self.sessions

    @property
    def wall_s(self) -> float:
        return self.wall / 1e9 / self.sessions

    def total(self, label: str) -> float:
        """Seconds of a label wherever it is in the tree."""
        return sum(ns for path, ns in self.tree.items() if path[-1] == label) / 1e9 / self.sessions


def read_session(path: Path) -> Measured:
    """A session as `hotloop report --json` tells it."""
    report = _hotloop("report", str(path), "--json")
    tree: dict[Labels, int] = defaultdict(int)
    paths: list[Labels] = []
    for row in report["balance"]:
        name = row["kind"] if row["kind"] in ("unattributed", "profiler") else row["name"]
        paths.append(() if row["parent"] < 0 else (*paths[row["parent"]], name))
        if paths[-1]:
            tree[paths[-1]] += row["ns"]
    owners = {name: round(s * 1e9) for name, s in report["owners"].items()}
    return Measured(1, report["balance"][0]["ns"], dict(tree), owners, report["counters"]["env_steps"])


def _hotloop(*arguments: str) -> Any:
    """The command's JSON; in this process, because starting another takes longer than the work."""
    before, sys.argv = sys.argv, ["hotloop", *arguments]
    try:
        with redirect_stdout(io.StringIO()) as out:
            runpy.run_module("hotloop", run_name="__main__")
    except SystemExit as done:
        if done.code:
            raise
    finally:
        sys.argv = before
    return json.loads(out.getvalue())


def judge(off: Sequence[Path], on: Sequence[Path]) -> Any:
    """What `hotloop compare` says of sessions that ran in pairs."""
    return _hotloop("compare", ",".join(map(str, off)), ",".join(map(str, on)), "--paired", "--json")


def add_up(parts: Sequence[Measured]) -> Measured:
    tree: dict[Labels, int] = defaultdict(int)
    owners: dict[str, int] = defaultdict(int)
    for part in parts:
        for path, ns in part.tree.items():
            tree[path] += ns
        for owner, ns in part.owners.items():
            owners[owner] += ns
    count = lambda field: sum(getattr(part, field) for part in parts)
    return Measured(count("sessions"), count("wall"), dict(tree), dict(owners), count("env_steps"))


# ---- one arm ----


def breakdown_text(arm: Measured, breakdown: bool) -> str:
    """Components with bars. `breakdown` also shows what data collection and the network calls consist of."""
    lines = ["Component Breakdown:", "-" * 60]
    number = 0
    shares = _shares(arm)
    for top in arm.children_of(()):
        is_span = top[-1] not in ("unattributed", "profiler")
        number += is_span
        lines.append(_row(f"{number}. " if is_span else "   ", 21, top, arm, shares))
        if top == ("data_collection",) and not breakdown:
            lines.append("   (includes env steps + policy forward passes)")
        for part in _parts(arm, top, breakdown):
            if shares[part]:
                lines.append(_row("   - ", 19, part, arm, shares))
            if breakdown:
                lines += [_row("      · ", 16, deep, arm, shares) for deep in arm.children_of(part) if shares[deep]]
        lines += [""] * is_span
    lines.append("-" * 60)
    lines.append(f"   {'Total (wall)':<21} {arm.wall_s:>7.2f}s (100.0%)")
    lines.append(f"   unattributed on all levels together: {100 * arm.total('unattributed') / arm.wall_s:.1f}%")
    return "\n".join(lines)


def _parts(arm: Measured, top: Labels, breakdown: bool) -> list[Labels]:
    """What is shown below a component: always what learning consists of, the rest with --breakdown."""
    return arm.children_of(top) if breakdown or top == ("training_loop",) else []


def owners_text(arm: Measured) -> str:
    """`hotloop report`'s ownership line, over the sessions of an arm."""
    ranked = sorted(arm.owners.items(), key=lambda item: -item[1])
    tenths = _round([ns for _, ns in ranked], 1000)
    parts = [f"{name} {x / 10:.1f} %" for (name, _), x in zip(ranked, tenths, strict=True) if x]
    return fill("owned by: " + " · ".join(part.replace(" ", "\0") for part in parts), 80).replace("\0", " ")


def _row(head: str, width: int, path: Labels, arm: Measured, shares: dict[Labels, int]) -> str:
    bar = "█" * max(1, round(38 * shares[path] / 1000)) if shares[path] else ""
    return f"{head}{title(path):<{width}} {arm.seconds(path):>7.2f}s ({shares[path] / 10:>5.1f}%)  {bar}".rstrip()


def title(path: Labels) -> str:
    return TITLES.get(path[-1], path[-1])


def _shares(arm: Measured) -> dict[Labels, int]:
    """Tenths of a percent of the wall time, rounded so that the rows of a level add up to the row above."""
    shares: dict[Labels, int] = {(): 1000}
    todo: list[Labels] = [()]
    while todo:
        above = todo.pop()
        below = arm.children_of(above)
        shares |= zip(below, _round([arm.tree[p] for p in below], shares[above]), strict=True)
        todo += below
    return shares


def _round(parts: Sequence[int], whole: int) -> list[int]:
    """Whole numbers in proportion to the parts, that add up: the largest remainders are rounded up."""
    total = sum(parts)
    if not total:
        return [0] * len(parts)
    floors = [whole * part // total for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda i: -(whole * parts[i] % total))
    for i in by_remainder[: whole - sum(floors)]:
        floors[i] += 1
    return floors


# ---- two arms ----


def comparison_text(off: Sequence[Measured], on: Sequence[Measured], breakdown: bool, judged: Any = None) -> str:
    """Baseline, turbo, speedup. `off[i]` and `on[i]` ran one after the other: the interval is that of the pairs' speedups, and
    with fewer than five pairs there is only their spread. `judged` is `hotloop compare`'s answer."""
    base, turbo = add_up(off), add_up(on)
    walls = lambda arm: f"{min(m.wall_s for m in arm):.2f} to {max(m.wall_s for m in arm):.2f}s"
    enough = len(off) >= LEAST_PAIRS
    spread = interval if enough else _range_of_pairs
    overall = spread([a.wall_s for a in off], [b.wall_s for b in on])
    gain, ratio = _percent(base.wall_s, turbo.wall_s), _ratio(base.wall_s, turbo.wall_s)
    lines = [
        "=" * 80, "Turbo Mode Comparison Report", "=" * 80, "",
        "Overall Performance:",
        f"  Baseline (turbo OFF): {base.wall_s:.2f}s   (mean of {len(off)} sessions, {walls(off)})",
        f"  Turbo (turbo ON):     {turbo.wall_s:.2f}s   (mean of {len(on)} sessions, {walls(on)})",
        f"  Speedup:              {gain}   ({ratio}; {'95% CI' if enough else 'pairs'} {overall})",
        *([] if judged is None else [fill(_verdict(judged), 80, initial_indent="  ", subsequent_indent="    ")]),
        "",
        "Component-Level Comparison:",
        f"{'Component':<24}{'Baseline':>10}{'Turbo':>10}{'Speedup':>10}{'Ratio':>9}  {'95% CI' if enough else 'Pairs':>15}",
        "-" * 80,
    ]  # fmt: skip
    for path in _compared(base, turbo, breakdown):
        name = "  " * (len(path) - 1) + title(path)
        before, after = base.seconds(path), turbo.seconds(path)
        pairs = spread([a.seconds(path) for a in off], [b.seconds(path) for b in on])
        gain, ratio = _percent(before, after), _ratio(before, after)
        lines.append(f"{name:<24}{before:>9.2f}s{after:>9.2f}s{gain:>10}{ratio:>9}  {pairs:>15}")
    before, after = base.total("unattributed"), turbo.total("unattributed")
    note = "Speedup = (baseline - turbo) / baseline, Ratio = baseline / turbo. "
    note += (
        f"95% CI: of the speedup, by a t test on the logarithms of {len(off)} pairs of neighbouring sessions (ABBA order); "
        "each row by itself, so of twenty rows without any effect one lies beside zero."
        if enough
        else f"Pairs: the smallest and the largest speedup among {len(off)} pair(s) of neighbouring sessions (ABBA order). "
        f"That is a spread, not a confidence interval, and no row is called significant: "
        f"--repetitions {LEAST_PAIRS} gives intervals."
    )
    lines += [f"{'Unattributed, all levels':<24}{before:>9.2f}s{after:>9.2f}s", "-" * 80, fill(note, 80)]
    return "\n".join(lines)


def _compared(base: Measured, turbo: Measured, breakdown: bool) -> list[Labels]:
    both = Measured(1, 1, dict.fromkeys([*base.tree, *turbo.tree], 0), {}, 0)
    shown = [path for top in both.children_of(()) for path in (top, *_parts(both, top, breakdown))]
    return [path for path in shown if path[-1] not in ("unattributed", "profiler")]


def interval(base: Sequence[float], new: Sequence[float]) -> str:
    """The 95 % interval of the speedup, from pairs; the ratio of times is what noise multiplies, so on logarithms.

    >>> interval([1.0, 1.01, 0.99, 1.0, 1.0], [0.5, 0.505, 0.495, 0.5, 0.505])
    '+49.5 to +50.2%'
    """
    from scipy import stats

    if min(*base, *new) <= 0:
        return "-"
    logs = [log(b / a) for a, b in zip(base, new, strict=True)]
    if max(logs) - min(logs) < 1e-9:
        return _range([(1 - exp(logs[0])) * 100] * 2)
    low, high = stats.ttest_1samp(logs, 0).confidence_interval()
    return _range([(1 - exp(x)) * 100 for x in (high, low)])


def _range_of_pairs(base: Sequence[float], new: Sequence[float]) -> str:
    return _range([speedup(a, b) for a, b in zip(base, new, strict=True)])


def _verdict(judged: Any) -> str:
    """`hotloop compare`'s words, per decision instead of per session."""
    ratio = judged["ratio"]
    bounds = "" if ratio["low"] is None else f", 95% CI {ratio['low']:.3f} to {ratio['high']:.3f}"
    needed = judged["needed_pairs"]
    more = f"; ±{100 * judged['margin']:g}% needs about {needed:,} pairs" if judged["verdict"] == "undecided" and needed else ""
    why = (
        f" ({judged['reason']}{more})"
        if judged["reason"]
        else f" (p = {judged['p']:.2g}{more})"
        if judged["p"] is not None
        else ""
    )
    return f"Verdict: {judged['verdict']}, turbo/baseline per decision {ratio['mid']:.3f}{bounds}{why}"


def speedup(base: float, new: float) -> float | None:
    """Percent of the baseline that was saved; None where there is no baseline.

    >>> speedup(4.0, 3.0)
    25.0
    """
    return (base - new) / base * 100 if base > 0 else None


def _percent(base: float, new: float) -> str:
    value = speedup(base, new)
    return "-" if value is None else f"{value:+.1f}%"


def _ratio(base: float, new: float) -> str:
    return f"{base / new:.2f}x" if base > 0 and new > 0 else "-"


def _range(values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{min(known):+.1f} to {max(known):+.1f}%" if known else "-"


# ---- what to do ----

_ADVICE = {
    "RL framework": "Its cost is per call, not per decision: try more --shops, a larger --minibatch",
    "tensor runtime": "Try a smaller network (--hidden) or fewer --epochs",
    "your code": "The environment is yours to make faster",
}


def recommendations(off: Sequence[Measured], on: Sequence[Measured], judged: Any = None) -> str:
    """From these sessions alone: what turbo did, what it can still give, and who owns the rest."""
    turbo = add_up(on)
    pairs = [speedup(a.wall_s, b.wall_s) or 0.0 for a, b in zip(off, on, strict=True)]
    gain = interval([m.wall_s for m in off], [m.wall_s for m in on]) if len(off) >= LEAST_PAIRS else ""
    verdict = judged["verdict"] if judged is not None and len(off) >= LEAST_PAIRS else None
    if verdict == "faster":
        first = f"Turbo is faster ({gain}) and gives the same trajectories: keep it on."
    elif verdict == "slower":
        first = f"Turbo is slower ({gain}): do not use it here."
    elif verdict is not None:
        first = f"{_verdict(judged)}: no effect that matters is shown."
    elif min(pairs) > 0:
        first = f"Turbo was faster in every pair ({_range(pairs)}) and gives the same trajectories: keep it on."
    elif max(pairs) < 0:
        first = f"Turbo was slower in every pair ({_range(pairs)}): do not use it here."
    else:
        first = f"The pairs disagree about turbo ({_range(pairs)}): no effect is shown; try more --repetitions or --batches."
    left = turbo.total("env_step") + turbo.total("env_reset")
    share = 100 * left / turbo.wall_s
    ranked = sorted(((ns, name) for name, ns in turbo.owners.items() if name in _ADVICE), reverse=True)
    advice = [
        first,
        f"With turbo, env steps and resets are {share:.1f}% of the wall: a faster environment cannot gain more than that.",
    ]
    if ranked:
        ns, name = ranked[0]
        advice.append(f"With turbo, the largest owner is: {name}, {100 * ns / turbo.wall:.1f}%. {_ADVICE[name]}.")
    wrapped = [fill(text, 80, initial_indent=f"  {i}. ", subsequent_indent="     ") for i, text in enumerate(advice, 1)]
    return "\n".join(["Recommendations:", *wrapped])
