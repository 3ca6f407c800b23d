"""The course of a run as one PNG: steps per second, where each iteration's time went, the balance sheet as an icicle, lanes.

What lives here: the charts `hotloop report --charts` draws, in the style of `charts`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..analyse.diagnosis import Diagnosis
from ..analyse.iterations import Floats, Iterations
from ..model.ledger import PROFILER, UNATTRIBUTED, WAITING
from ..model.sheet import SPAN, Sheet, fold_small
from .charts import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    name_text,
    page,
    png_of,
    say,
    subtitle,
)
from .drawing import WORD, balance_parts
from .units import duration_text, rate_text, share_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KIND_COLOUR = {SPAN: BLUE, WAITING: YELLOW, UNATTRIBUTED: PURPLE, PROFILER: GREY}
KIND_HATCH = {SPAN: "", WAITING: "//", UNATTRIBUTED: "..", PROFILER: "xx"}
_STACK = (BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, YELLOW)
_LEVELS = 7
LANES_DRAWN = 16


def draw_run(diagnosis: Diagnosis) -> bytes:
    """Four charts on one page."""
    with page(1600, 1200) as figure:
        ((rate, labels), (icicle, lanes)) = figure.subplots(2, 2)
        chart_rate(rate, diagnosis.iterations)
        chart_labels(labels, diagnosis.iterations)
        chart_icicle(icicle, diagnosis.sheet)
        chart_lanes(lanes, diagnosis)
        return png_of(figure)


def chart_rate(axes: Axes, history: Iterations | None) -> None:
    """Env steps per second over the run, or iterations where no steps were counted."""
    axes.set_title("Speed over the run")
    if history is None:
        return say(axes, "no iteration was closed: call step() at the end of each")
    series = history.series
    counted = "env_steps" in series.rates
    values = series.rates["env_steps"] if counted else 1 / series.seconds
    middle = series.start_s + series.seconds * series.merged / 2
    axes.plot(middle, values, color=SKY, linewidth=1, alpha=0.8, label="each iteration")
    window = max(1, len(values) // 25)
    if window > 1:
        axes.plot(middle, _smooth(values, window), color=BLUE, linewidth=2, label=f"mean of {window}")
    if history.steady.start:
        until = float(series.start_s[history.steady.start])
        axes.axvspan(0, until, color=ORANGE, alpha=0.2, linewidth=0, label="warm-up")
    for change in history.changes[:8]:
        axes.axvline(float(series.start_s[change.row]), color=VERMILION, linestyle="--", linewidth=1)
    axes.set_ylim(0, float(np.max(values)) * 1.08 or 1.0)
    axes.set_xlim(0, float(series.start_s[-1] + series.seconds[-1] * series.merged[-1]))
    axes.grid(True, axis="both")
    axes.yaxis.set_major_formatter(lambda value, _: rate_text(value))
    axes.set_xlabel("seconds since the first iteration began")
    subtitle(
        axes, ("env steps" if counted else "iterations") + " per second" + "; dashed: level changes" * bool(history.changes)
    )
    axes.legend(loc="lower right", fontsize=9)


def _smooth(values: Floats, window: int) -> Floats:
    """The mean of the neighbours, with fewer at the ends."""
    ones = np.ones(window)
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")


def chart_labels(axes: Axes, history: Iterations | None) -> None:
    """What each iteration's time went to: the largest labels' own time, stacked."""
    axes.set_title("Time of an iteration by label")
    if history is None or not history.series.exclusive:
        return say(axes, "no iteration was closed: call step() at the end of each")
    series = history.series
    totals = {name: float((column * series.merged).sum()) for name, column in series.exclusive.items()}
    names = [name for name in sorted(totals, key=lambda n: -totals[n]) if totals[name] > 0]
    top, rest = names[: len(_STACK)], names[len(_STACK) :]
    columns = [series.exclusive[name] * 1e3 for name in top]
    labels = [name_text(name, 24) for name in top]
    colours = list(_STACK[: len(top)])
    if rest:
        columns.append(np.sum([series.exclusive[name] for name in rest], axis=0) * 1e3)
        labels.append(f"{len(rest)} more")
        colours.append(GREY)
    if not columns:
        return say(axes, "no label took time in these iterations")
    stack = _fold_columns(np.array(columns), 400)
    x = np.linspace(float(series.first[0]), max(1.0, float(series.first[-1])), max(2, stack.shape[1]))
    stack = np.repeat(stack, 2, axis=1) if stack.shape[1] == 1 else stack
    axes.stackplot(x, stack, labels=labels, colors=colours, linewidth=0)
    axes.set_xlim(float(x[0]), float(x[-1]))
    axes.grid(True, axis="y")
    axes.set_xlabel("iteration")
    axes.yaxis.set_major_formatter(lambda ms, _: duration_text(ms * 1e6) if ms else "0")
    subtitle(axes, "running in the label itself, without what it calls or waits for; thread time")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9, handlelength=1.2)


def _fold_columns(values: Floats, most: int) -> Floats:
    if values.shape[1] <= most:
        return values
    edges = np.linspace(0, values.shape[1], most + 1).astype(int)
    return np.stack([values[:, a:b].mean(axis=1) for a, b in pairwise(edges)], axis=1)


def chart_icicle(axes: Axes, sheet: Sheet | None) -> None:
    """The balance sheet: each row as wide as its share, its parts below it."""
    axes.set_title("Where the wall time went")
    if sheet is None or not sheet.wall_ns:
        return say(axes, "nothing was recorded")
    small = fold_small(sheet, sheet.wall_ns // 250, most_children=16, most_depth=_LEVELS - 1)
    left = [0.0] * len(small.rows)
    used = [0.0] * len(small.rows)
    for i, row in enumerate(small.rows):
        width = row.ns / sheet.wall_ns
        if row.parent >= 0:
            left[i] = used[row.parent]
            used[row.parent] += width
        used[i] = left[i]
        kind = row.account if row.leaf else SPAN
        axes.barh(
            row.depth, width, left=left[i], height=0.94, color=KIND_COLOUR[kind], hatch=KIND_HATCH[kind],
            alpha=1.0 if row.leaf else 0.45, edgecolor="white", linewidth=0.8,
        )  # fmt: skip
        room = int(width * 88)
        text = ("≈ " if row.inferred else "") + name_text(row.name, max(1, room - 2))
        if room >= 6:
            share = f"  {share_text(width)}" if room > len(text) + 9 else ""
            dark = row.leaf and kind in (SPAN, PROFILER)
            box = {"facecolor": KIND_COLOUR[kind], "edgecolor": "none", "pad": 1.0} if KIND_HATCH[kind] else None
            axes.text(
                left[i] + 0.004, row.depth, text + share, va="center", fontsize=9, color="white" if dark else INK, bbox=box,
                clip_on=True,
            )  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_ylim(max(row.depth for row in small.rows) + 0.5, -0.5)
    axes.set_yticks([])
    axes.grid(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
    subtitle(
        axes, "100 % = " + duration_text(sheet.wall_ns) + "; ≈ inferred: between two calls, or waited for handed-over work"
    )


def chart_lanes(axes: Axes, diagnosis: Diagnosis) -> None:
    """Every thread's lifetime by kind."""
    axes.set_title("Threads and processes")
    balances = sorted(diagnosis.ledger.balances, key=lambda b: (b.shard != 0, b.track != 0, -b.lifetime_ns))[:LANES_DRAWN]
    balances = [b for b in balances if b.lifetime_ns]
    if not balances:
        return say(axes, "nothing was recorded")
    parts = [balance_parts(b) for b in balances]
    left = np.zeros(len(balances))
    for kind in parts[0]:
        seconds = np.array([part[kind] for part in parts]) / 1e9
        axes.barh(
            range(len(balances)), seconds, left=left, height=0.7, color=KIND_COLOUR[kind], hatch=KIND_HATCH[kind],
            edgecolor="white", linewidth=0, label=WORD[kind],
        )  # fmt: skip
        left += seconds
    names = [b.name if b.shard == 0 else f"{diagnosis.processes[b.shard].pid} {b.name}" for b in balances]
    axes.set_yticks(range(len(names)), [name_text(name, 26) for name in names])
    axes.set_ylim(max(len(names), 5) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g} s")
    left_out = len(diagnosis.ledger.balances) - len(balances)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=4, fontsize=9, handlelength=1.4, columnspacing=1.4)
    if left_out > 0:
        axes.set_xlabel(f"{left_out} more threads are not drawn", color=FAINT)
