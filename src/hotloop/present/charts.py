"""Charts as PNG images, drawn by matplotlib without its global state: a Figure, a canvas, bytes.

What lives here: one palette, one style, one function per chart. A chart function takes axes and frozen results; `draw_…`
functions put charts on a page and answer the image. Invariant: names are data, never markup, never wider than their room.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from ..analyse.bottlenecks import LARGE_MB, SLOW_MS, Analysis, Bottleneck, score_parts
from ..errors import UsageError
from .analysis import fit, printable
from .units import duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by readers with any kind of colour blindness.
BLUE, ORANGE, GREEN, YELLOW = "#0072B2", "#E69F00", "#009E73", "#F0E442"
SKY, VERMILION, PURPLE, GREY = "#56B4E9", "#D55E00", "#CC79A7", "#999999"
INK, FAINT = "#222222", "#666666"

DPI = 100  # one point is 1.4 pixels: text of 10 points reads well at 100 % zoom
STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": FAINT,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlepad": 24,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "grid.color": "#e3e3e3",
    "text.color": INK,
    "text.parse_math": False,  # a `$` in a name is a `$`
    "font.size": 10,
    "xtick.color": FAINT,
    "ytick.left": False,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}
MOST_BARS = 10
LONGEST_NAME = 30
BAR = 0.62  # height; 1 is the distance of bars
PANEL_PX = 500  # the axis of one of two charts side by side, at least
# Looked for after matplotlib's own font, which has no Chinese, Japanese or Korean.
_MORE_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Source Han Sans",
    "WenQuanYi Zen Hei",
    "Hiragino Sans",
    "Microsoft YaHei",
)


# ---- the page ----


@contextmanager
def page(width_px: int, height_px: int) -> Iterator[Figure]:
    """A figure to draw on, in our style whatever the user's settings are; `png_of` it before leaving."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no word about caches and fonts
    try:
        from matplotlib import style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except Exception as error:  # missing, broken, or a setting it refuses at import
        raise UsageError(f"charts need matplotlib, which cannot be imported ({error}); run `pip install matplotlib`") from None
    with style.context(["default", {**STYLE, "font.family": _fonts()[0]}]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layout = ConstrainedLayoutEngine(w_pad=0.25, h_pad=0.25, wspace=0.02, hspace=0.02)
        figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, layout=layout)
        FigureCanvasAgg(figure)
        yield figure


def png_of(figure: Figure) -> bytes:
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DPI, metadata={"Software": None})
    return image.getvalue()


@cache
def _fonts() -> tuple[list[str], frozenset[int]]:
    """The font families in use, and every character that one of them can draw."""
    from matplotlib import font_manager as f

    installed = {font.name for font in f.fontManager.ttflist}
    families = ["DejaVu Sans", *(name for name in _MORE_FONTS if name in installed)]
    paths = [f.findfont(f.FontProperties(family=[name])) for name in families]
    return families, frozenset(code for path in paths for code in f.get_font(path).get_charmap())


def name_text(name: str, limit: int = LONGEST_NAME) -> str:
    """A name as it can be drawn: escaped, shortened, with a box for what no font has."""
    known = _fonts()[1]
    return "".join(c if ord(c) in known else "□" for c in fit(printable(name), limit).rstrip())


# ---- the bottleneck page ----


def draw_bottlenecks(analysis: Analysis) -> bytes:
    """Four charts on one page: top bottlenecks, categories, average time, memory."""
    with page(1600, 1100) as figure:
        ((scores, shares), (times, memory)) = figure.subplots(2, 2)
        chart_scores(scores, analysis)
        chart_categories(shares, analysis)
        chart_average_times(times, analysis)
        chart_memory(memory, analysis)
        return png_of(figure)


def chart_scores(axes: Axes, analysis: Analysis) -> None:
    """The score of the top bottlenecks, by what it is made of."""
    axes.set_title("Top bottlenecks by score")
    rows = analysis.bottlenecks[:MOST_BARS]
    if not rows:
        return say(axes, _nothing_ranked(analysis))
    scores = [score_parts(b.time_percent, b.avg_time_ms, b.memory_peak_mb or 0.0, b.gpu_memory_peak_mb or 0.0) for b in rows]
    parts = (("time", BLUE), ("time per call", ORANGE), ("memory", GREEN), ("GPU memory", PURPLE))
    left = [0.0] * len(rows)
    for (label, colour), values in zip(parts, zip(*scores, strict=True), strict=True):
        axes.barh(range(len(rows)), values, left=left, height=BAR, color=colour, label=label)
        left = [a + b for a, b in zip(left, values, strict=True)]
    notes(axes, left, [f"{b.score:.1f}" + f"  {' · '.join(b.levels)}" * bool(b.levels) for b in rows])
    name_bars(axes, [b.name for b in rows])
    legend_above(axes)


def chart_categories(axes: Axes, analysis: Analysis) -> None:
    """The share of each category, with what is no operation's beside them."""
    axes.set_title("Categories")
    rows = (*analysis.categories[:MOST_BARS], *analysis.beside)
    if not any(c.percent for c in rows):
        return say(axes, "no time was recorded")
    beside = {c.name for c in analysis.beside}
    values = [c.percent for c in rows]
    axes.barh(range(len(rows)), values, height=BAR, color=[GREY if c.name in beside else BLUE for c in rows])
    waits = [f"  (and waits {c.waiting_percent:.1f} %)" if c.waiting_percent >= 0.05 else "" for c in rows]
    notes(axes, values, [f"{c.percent:.1f} %{text}" for c, text in zip(rows, waits, strict=True)])
    name_bars(axes, [c.name for c in rows])
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= min(100, axes.get_xlim()[1])])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    text = "own time, share of the wall time" if analysis.ours else "share of the summed time; nested operations count again"
    left_out = len(analysis.categories) - MOST_BARS
    subtitle(axes, text + (f"; {left_out} smaller ones are not drawn" if left_out > 0 else ""))


def chart_average_times(axes: Axes, analysis: Analysis) -> None:
    """Time per call of the top bottlenecks."""
    axes.set_title("Average time of a call")
    rows = sorted((b for b in analysis.bottlenecks[:MOST_BARS] if b.avg_time_ms > 0), key=lambda b: -b.avg_time_ms)
    if not rows:
        return say(axes, _nothing_ranked(analysis))
    values = [b.avg_time_ms for b in rows]
    axes.barh(range(len(rows)), values, height=BAR, color=[VERMILION if v > SLOW_MS else SKY for v in values])
    stretch(axes, values)
    notes(axes, values, [duration_text(v * 1e6) for v in values])
    name_bars(axes, [b.name for b in rows])
    axes.xaxis.set_major_formatter(lambda ms, _: _time_tick(ms))
    threshold(axes, SLOW_MS, f"SLOW: above {SLOW_MS:g} ms")
    legend_above(axes)


def chart_memory(axes: Axes, analysis: Analysis) -> None:
    """Peak memory of the operations that use most."""
    axes.set_title("Peak memory")
    rows = sorted((b for b in analysis.bottlenecks if _largest_mb(b) > 0), key=lambda b: -_largest_mb(b))[:MOST_BARS]
    if not rows:
        if any(b.memory_peak_mb is not None for b in analysis.bottlenecks):
            return say(axes, "no operation used memory that could be measured")
        return say(axes, "no memory was measured: use track_memory=True")
    series = [
        ("memory", GREEN, [b.memory_peak_mb or 0.0 for b in rows]),
        ("GPU memory", PURPLE, [b.gpu_memory_peak_mb or 0.0 for b in rows]),
    ]
    series = [(label, colour, values) for label, colour, values in series if any(values)]
    height = BAR if len(series) == 1 else 0.4
    stretch(axes, [v for _, _, values in series for v in values])
    for number, (label, colour, values) in enumerate(series):
        offset = (number - (len(series) - 1) / 2) * height
        axes.barh([at + offset for at in range(len(rows))], values, height=height * 0.92, color=colour, label=label)
        notes(axes, values, [_megabytes(v) if v else "" for v in values], offset)
    name_bars(axes, [b.name for b in rows])
    axes.xaxis.set_major_formatter(lambda mb, _: f"{mb:,.10g} MB")
    threshold(axes, LARGE_MB, f"flagged above {LARGE_MB:g} MB")
    legend_above(axes)


def _largest_mb(b: Bottleneck) -> float:
    return max(b.memory_peak_mb or 0.0, b.gpu_memory_peak_mb or 0.0)


def _megabytes(value: float) -> str:
    return f"{value / 1024:,.1f} GB" if value >= 1024 else f"{value:.0f} MB" if value >= 10 else f"{value:.2g} MB"


def _nothing_ranked(analysis: Analysis) -> str:
    if not analysis.rare:
        return "no operation was recorded"
    return f"no operation has {analysis.min_calls} calls or more: try --min-calls 1"


def _time_tick(ms: float) -> str:
    if ms <= 0:
        return "0"
    return next(f"{ms / size:g} {unit}" for unit, size in (("s", 1e3), ("ms", 1), ("µs", 1e-3), ("ns", 0)) if ms >= size * 0.99)


# ---- parts that charts share ----


def stretch(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis where the small bars would vanish beside the large ones."""
    known = [v for v in values if v > 0]
    if max(known) > 50 * min(known):
        axes.set_xscale("log")
        axes.set_xlim(min(known) / 3, max(known))
        axes.xaxis.set_minor_formatter(lambda value, _: "")


def notes(axes: Axes, ends: Sequence[float], texts: Sequence[str], offset: float = 0.0) -> None:
    """A word at the end of each bar, and an axis long enough for it."""
    logarithmic = axes.get_xscale() == "log"
    low, reach = axes.get_xlim()
    low = low if logarithmic else 0.0
    for at, (end, text) in enumerate(zip(ends, texts, strict=True)):
        room = 1 - min(0.6, (len(text) * 7 + 15) / PANEL_PX)  # the part of the axis left of the text
        if end > low:
            reach = max(reach, low * (end / low) ** (1 / room) if logarithmic else end / room)
        axes.annotate(
            text, (max(end, low), at + offset), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
        )  # fmt: skip
    axes.set_xlim(low, reach or 1.0)


def name_bars(axes: Axes, names: Sequence[str]) -> None:
    """Names at the bars, the first on top."""
    axes.set_yticks(range(len(names)), [name_text(name) for name in names])
    axes.set_ylim(max(len(names), 5) - 0.4, -0.6)  # few bars stay slim


def subtitle(axes: Axes, text: str) -> None:
    axes.text(0, 1.015, text, transform=axes.transAxes, va="bottom", fontsize=9, color=FAINT)


def say(axes: Axes, text: str) -> None:
    """An empty chart, and why."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=12, color=FAINT)


def threshold(axes: Axes, value: float, text: str) -> None:
    """A dashed line, where the axis reaches it; its name is in the legend, where nothing can lie below it."""
    low, high = axes.get_xlim()
    if low < value < high:
        axes.axvline(value, color=VERMILION, linestyle="--", linewidth=1.2, label=text)


def legend_above(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=4, fontsize=9, handlelength=1.2, columnspacing=1.4)
