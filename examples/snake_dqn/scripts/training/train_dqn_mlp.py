"""Train a DQN with an MLP on vectorised Snake, recorded by HotLoop.

    python scripts/training/train_dqn_mlp.py --episodes 100 --envs 32

Prints where a step's time goes, the steps/episodes sanity check, and the session it wrote. `--help` lists the switches, one per
suspect of the investigation; the defaults are the document's (slow) ones.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs from any folder

from core.environment_vectorized import ACTIONS, VectorizedSnakeEnv
from scripts.training.train_dqn import DQNTrainer, Settings, print_single_step, read_totals

from hotloop import get_profiler, profile, start, stop


def make_mlp(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def parse() -> tuple[Settings, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for f in fields(Settings):
        assert f.default is not MISSING
        flag = {"type": type(f.default), **f.metadata["flag"]}
        parser.add_argument(f"--{f.name.replace('_', '-')}", default=f.default, help=f.metadata["help"], **flag)
    parser.add_argument("--out", default="runs", help="folder for the session")
    parser.add_argument("--no-profile", action="store_true", help="train without HotLoop, to see what it costs")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="also run under cProfile and print the top N")
    parser.add_argument("--curve", metavar="FILE.png", help="save the learning curve, with the random policy's score")
    args = parser.parse_args()
    if problem := find_problem(args):
        parser.error(problem)
    return Settings(**{f.name: getattr(args, f.name) for f in fields(Settings)}), args


def find_problem(args: argparse.Namespace) -> str:
    """What is wrong with the flags, in one sentence; empty if nothing is."""
    for name in ("episodes", "envs", "train_every", "batch", "target_every", "sync_every", "threads"):
        if getattr(args, name) < 1:
            return f"--{name.replace('_', '-')} must be at least 1"
    if args.board < 4:
        return "--board must be at least 4"
    if args.buffer < max(args.envs, args.batch):
        return "--buffer must hold at least one vector step (--envs) and one batch (--batch)"
    if not 0 < args.explore <= 1:
        return "--explore is a share of the run: above 0, at most 1"
    if args.curve and args.log == "quiet":
        return "--curve needs the metrics: use --log normal or heavy"
    if args.no_profile and args.single_step:
        return "--single-step reads the spans: leave out --no-profile"
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        return "no CUDA device here: use --device cpu"
    return ""


def score_random(settings: Settings, episodes: int = 2000) -> float:
    """Mean score of uniformly random moves, on games of their own."""
    env = VectorizedSnakeEnv(settings.envs, settings.board, device=settings.device, seed=settings.seed + 100)
    env.reset()
    scores, ended = 0, 0
    while ended < episodes:
        actions = torch.randint(len(ACTIONS), (settings.envs,), generator=env.random, device=env.device)
        _, _, dones, info = env.step(actions)
        scores, ended = scores + int(info["score"].sum()), ended + int(dones.sum())
    return scores / ended


def save_curve(path: str, trainer: DQNTrainer, random_score: float) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    scores = torch.tensor(trainer.metrics.scores, dtype=torch.float32)
    steps = torch.tensor(trainer.metrics.ended_at, dtype=torch.float32)
    s = trainer.settings
    bins = torch.linspace(0, trainer.total_steps, 81)[1:]
    which = torch.bucketize(steps, bins).clamp(max=79)
    n = torch.zeros(80).index_add_(0, which, torch.ones_like(scores))
    mean = torch.zeros(80).index_add_(0, which, scores) / n
    figure, axes = plt.subplots(figsize=(7, 4), dpi=100)
    shown = n > 0
    axes.plot((bins[shown] / 1e6).numpy(), mean[shown].numpy(), lw=2, label="DQN, with its exploration")
    axes.axhline(random_score, color="0.4", ls="--", label=f"random moves ({random_score:.2f})")
    axes.set(
        xlabel="environment steps (millions)",
        ylabel="food per episode",
        title=f"Snake {s.board}×{s.board}, {s.envs} games, seed {s.seed}: {trainer.metrics.recent():.1f} food at the end",
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


def main() -> None:
    settings, args = parse()
    s = settings
    print(
        f"snake_dqn: board {s.board}x{s.board}, {s.envs} games on {s.device}, push {s.push}, train {s.num_train_steps} x "
        f"every {s.train_every} vector step(s), flood fill {s.flood_fill}, log {s.log}, seed {s.seed}"
    )
    if not args.no_profile:
        start(name="snake_dqn", out=args.out)
    with profile("setup"):
        trainer = DQNTrainer(settings, make_mlp)
    if args.functions:
        functions = cProfile.Profile()
        functions.runcall(trainer.train, verbose=False)
    else:
        trainer.train(verbose=s.log != "quiet")
    totals = None if args.no_profile else read_totals()
    if s.single_step > trainer.vector_steps:
        print(f"vector step {s.single_step} was not reached: the run has {trainer.vector_steps}")
    if totals is not None:
        print_single_step(f"mean of {trainer.vector_steps} vector steps", totals, steps=trainer.vector_steps)
        if trainer.device.type == "cuda":
            print("host timing: work queued on the GPU is charged to the span that waits for it")
        get_profiler().print_rollout(last=max(1, trainer.vector_steps - 1))  # the first holds the setup
        session = stop()
    trainer.print_sanity_check()
    if args.functions:
        print(f"FUNCTIONS (top {args.functions} by cumulative time; cProfile's own cost is in these times)")
        pstats.Stats(functions).sort_stats("cumulative").print_stats(args.functions)
    if s.log != "quiet":
        print(f"score of the last {min(1000, len(trainer.metrics.scores))} episodes: {trainer.metrics.recent():.2f}")
    if args.curve:
        random_score = score_random(settings)
        print(f"score of random moves: {random_score:.2f}")
        save_curve(args.curve, trainer, random_score)
    if totals is not None:
        print(f"wrote {session}\nnext: hotloop report {session}")


if __name__ == "__main__":
    main()
