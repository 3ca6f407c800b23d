"""The win rate over a run as a picture."""

from __future__ import annotations

from pathlib import Path


def save_curve(path: Path, wins: list[bool], baseline: list[bool], window: int) -> Path:
    """Each point is the share of `window` battles won; the line, the mean of five such points."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    points = [wins[i : i + window] for i in range(0, len(wins), window)]
    shares = [100 * sum(p) / len(p) for p in points]
    episodes = [min((i + 1) * window, len(wins)) for i in range(len(points))]
    smooth = [sum(shares[max(0, i - 4) : i + 1]) / len(shares[max(0, i - 4) : i + 1]) for i in range(len(shares))]
    random_share = 100 * sum(baseline) / len(baseline)
    figure, axes = plt.subplots(figsize=(7, 4), dpi=110, layout="constrained")
    axes.scatter(episodes, shares, s=8, color="#9bb7d4", label=f"share of {window} battles")
    axes.plot(episodes, smooth, color="#1f4e79", label="mean of five such shares")
    axes.axhline(random_share, color="#b03a2e", linestyle="--", label=f"random player, {len(baseline)} battles")
    axes.set(xlabel="episodes (battles)", ylabel="battles won (%)", ylim=(0, 100), title="Win rate against a random opponent")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return path
