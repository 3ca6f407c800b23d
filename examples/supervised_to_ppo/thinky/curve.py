"""The learning curve as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw_curve(
    path: Path,
    metrics: list[dict[str, Any]],
    evaluations: list[tuple[int, float]],
    references: dict[str, float],
    supervised_steps: int,
) -> Path:
    """Evaluated return over agent steps with the random player and the teacher, and below it the agreement with the teacher."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7.5, 5.5), sharex=True, height_ratios=(3, 1.3), layout="constrained")
    top.plot(*zip(*evaluations, strict=True), color="#1b6ca8", marker="o", markersize=3, label="student")
    for (who, value), style in zip(references.items(), (":", "--"), strict=True):
        top.axhline(value, color="0.35", linestyle=style, linewidth=1.2, label=f"{who} ({value:.2f})")
    top.set_ylabel("ore delivered per agent\nand episode")
    top.set_ylim(bottom=0)
    top.set_title("Imitate the teacher, then PPO without it")
    taught = [(row["agent_step"], row["accuracy"]) for row in metrics if "accuracy" in row]
    if taught:
        bottom.plot(*zip(*taught, strict=True), color="#b5541c", linewidth=1)
    bottom.set_ylabel("agreement\nwith teacher")
    bottom.set_ylim(0, 1)
    bottom.set_xlabel("agent steps")
    bottom.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for axes in (top, bottom):
        axes.axvline(supervised_steps, color="0.6", linewidth=1)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    bottom.annotate(
        "teacher off, PPO", (supervised_steps, 0.06), textcoords="offset points", xytext=(4, 0), fontsize=9, color="0.35"
    )
    top.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return path
