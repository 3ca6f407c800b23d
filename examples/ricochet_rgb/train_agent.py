"""Recurrent PPO that solves Ricochet Robots from pictures.

    python train_agent.py --obs-mode rgb_image --convlstm --enable-profiling --timesteps 10000

What lives here: settings, collecting, learning, and the loop of the two. The game is in ricochet.py, its picture in
rendering.py, the networks in model.py.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from model import ConvLSTMNet, ConvNet, Policy
from rendering import RgbObserver
from ricochet import MAX_ROBOTS, Episode, Game, Games, Observer, Rules, SymbolicObserver
from torch import Tensor, nn

from hotloop import count, get_profiler, profile, start, step, stop

HOST_TIMING = (
    "times are the host's: on a GPU, work that is queued shows where the host waits for it (actions_to_cpu, training_log)"
)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--timesteps", type=int, default=20_000, help="env steps to train for, all envs together")
    add("--seed", type=int, default=1, help="of puzzles, weights and actions")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where the network lives")
    add("--threads", type=int, default=1, help="threads torch uses for one operation on the CPU")
    add("--out", type=Path, default=Path(), help="folder below which everything is written")
    add("--curve", type=Path, help="draw return over env steps, with a random player's, into this PNG")

    group = parser.add_argument_group("profiling")
    add = group.add_argument
    add("--enable-profiling", action="store_true", help="record a HotLoop session and write the report")
    add(
        "--profiling-report",
        type=Path,
        default=Path("profiling_report.json"),
        help="the report, for python -m profiling.analyzer",
    )
    add(
        "--profiling-summary-freq",
        type=int,
        default=4_000,
        metavar="N",
        help="print the summary every N env steps (0: at the end)",
    )

    group = parser.add_argument_group("puzzle")
    add = group.add_argument
    add("--board-size", type=int, default=16, help="cells a side")
    add("--robots", type=int, default=4, help="1 to 4; there are four actions for each")
    add("--corners", type=int, default=16, help="L-shaped pieces of wall")
    add("--max-distance", type=int, default=4, help="moves the target's robot needs at most")
    add("--max-moves", type=int, default=20, help="moves until a puzzle counts as not solved")

    group = parser.add_argument_group("observation")
    add = group.add_argument
    add("--obs-mode", choices=("rgb_image", "symbolic"), default="rgb_image", help="a picture, or planes of cells")
    add("--image-size", type=int, default=64, help="pixels a side that the network sees (rgb_image)")
    add("--cell-px", type=int, default=20, help="pixels a cell is drawn with before resizing (rgb_image)")
    add("--cache-static", action="store_true", help="draw grid and walls once per board (rgb_image)")

    group = parser.add_argument_group("network")
    add = group.add_argument
    add("--convlstm", action="store_true", help="a ConvLSTM with memory; without it a plain convolutional net")
    add("--hidden", type=int, default=16, help="channels")
    add("--layers", type=int, default=2, help="ConvLSTM layers")
    add("--ticks", type=int, default=1, help="times the layers run for each step")
    add("--map-size", type=int, default=8, help="the encoder halves the picture until the map has at most so many cells a side")
    add("--features", type=int, default=128, help="width of the projection")

    group = parser.add_argument_group("PPO")
    add = group.add_argument
    add("--envs", type=int, default=16, help="games side by side")
    add("--rollout-steps", type=int, default=32, help="steps of each game between two updates")
    add("--epochs", type=int, default=3, help="passes over a rollout")
    add("--minibatches", type=int, default=4, help="parts of a rollout, by games")
    add("--lr", type=float, default=5e-4, help="learning rate")
    add("--gamma", type=float, default=0.97, help="discount")
    add("--gae-lambda", type=float, default=0.95, help="of the generalised advantage estimate")
    add("--clip", type=float, default=0.2, help="how far the policy may move per update")
    add("--entropy", type=float, default=0.01, help="weight of the entropy bonus")
    add("--value", type=float, default=0.5, help="weight of the value loss")
    add("--max-grad-norm", type=float, default=0.5, help="gradients are cut to this norm")
    args = parser.parse_args(argv)
    if not 1 <= args.robots <= MAX_ROBOTS:
        parser.error(f"--robots {args.robots}: there are 1 to {MAX_ROBOTS}")
    if args.board_size < 6:
        parser.error(f"--board-size {args.board_size}: the block in the middle needs a board of at least 6")
    if args.envs % args.minibatches:
        parser.error(f"--envs {args.envs} cannot be split into --minibatches {args.minibatches} equal parts")
    return args


@dataclass(slots=True)
class Rollout:
    """What was collected, (steps, envs) each, on the network's device."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    keep: Tensor
    rewards: Tensor
    ended: Tensor
    last_value: Tensor
    first_state: Tensor


class Agent:
    """Collects rollouts and learns from them."""

    def __init__(self, args: argparse.Namespace, games: Games, policy: Policy) -> None:
        self.args, self.games, self.policy = args, games, policy
        self.device = torch.device(args.device)
        self.optimizer = torch.optim.Adam(policy.parameters(), args.lr, eps=1e-5)
        self.state = policy.net.initial_state(args.envs)
        self.keep = torch.zeros(args.envs, device=self.device)
        self.observations = self._to_device(games.observe())

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    @torch.no_grad()
    def collect(self) -> tuple[Rollout, list[Episode]]:
        """Play all games for `rollout_steps` steps."""
        first_state, finished = self.state, []
        rows: list[tuple[Tensor, ...]] = []
        rewards, ended = [], []
        for _ in range(self.args.rollout_steps):
            action, log_prob, value, state = self.policy(self.observations, self.state, self.keep)
            rows.append((self.observations, action, log_prob, value, self.keep))
            with profile("actions_to_cpu"):
                chosen = action.cpu().numpy()
            observations, reward, over, episodes = self.games.step(chosen)
            with profile("observations_to_device"):
                self.observations = self._to_device(observations)
                self.keep = 1 - self._to_device(over).float()
            self.state = state
            rewards.append(reward)
            ended.append(over)
            finished += episodes
        _, _, last_value, _ = self.policy(self.observations, self.state, self.keep)
        with profile("rollout_stack"):
            columns = [torch.stack(column) for column in zip(*rows, strict=True)]
            of_games = [self._to_device(np.stack(column)) for column in (rewards, ended)]
            rollout = Rollout(*columns, *of_games, last_value, first_state)
        count("env_steps", self.args.envs * self.args.rollout_steps)
        return rollout, finished

    @torch.no_grad()
    def advantages(self, rollout: Rollout) -> Tensor:
        """Generalised advantage estimates. A puzzle that ran out of moves is over, by its rules: nothing is bootstrapped."""
        with profile("training_advantages"):
            goes_on = self.args.gamma * (~rollout.ended).float()
            after = torch.cat([rollout.values[1:], rollout.last_value[None]])
            errors = rollout.rewards + goes_on * after - rollout.values
            advantage, result = torch.zeros_like(rollout.last_value), torch.empty_like(errors)
            for t in reversed(range(len(errors))):
                advantage = result[t] = errors[t] + self.args.gae_lambda * goes_on[t] * advantage
            return result

    def learn(self, rollout: Rollout, advantages: Tensor) -> Tensor:
        """Update the policy; answers (policy loss, value loss, entropy) of the last minibatch, still on the device."""
        args, losses = self.args, torch.zeros(3)
        returns = advantages + rollout.values
        columns = (rollout.observations, rollout.keep, rollout.actions, rollout.log_probs, advantages, returns)
        for _ in range(args.epochs):
            for envs in torch.randperm(args.envs).chunk(args.minibatches):
                with profile("training_minibatch"):
                    chosen = envs.to(self.device)
                    observations, keep, actions, old_log_probs, advantage, target = (column[:, chosen] for column in columns)
                    state = rollout.first_state[:, :, chosen]
                    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                log_probs, entropies, values = self.policy.evaluate_actions(observations, state, keep, actions)
                with profile("training_loss"):
                    ratio = (log_probs - old_log_probs).exp()
                    clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
                    policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
                    value_loss = 0.5 * (values - target).square().mean()
                    entropy = entropies.mean()
                    loss = policy_loss + args.value * value_loss - args.entropy * entropy
                with profile("training_backward", track_memory=True):
                    self.optimizer.zero_grad()
                    loss.backward()
                with profile("training_optimizer_step"):
                    nn.utils.clip_grad_norm_(self.policy.parameters(), args.max_grad_norm)
                    self.optimizer.step()
                losses = torch.stack([policy_loss, value_loss, entropy]).detach()
                count("updates")
                count("samples", advantage.numel())
        return losses


def make_observer(args: argparse.Namespace, rules: Rules) -> Observer:
    if args.obs_mode == "symbolic":
        return SymbolicObserver(rules)
    return RgbObserver(rules, args.image_size, args.cell_px, args.cache_static)


def make_policy(args: argparse.Namespace, games: Games) -> Policy:
    shape = games.observer.shape
    net: ConvLSTMNet | ConvNet
    if args.convlstm:
        net = ConvLSTMNet(shape, args.hidden, args.layers, args.ticks, args.features, args.map_size)
    else:
        net = ConvNet(shape, args.hidden, args.features, args.map_size)
    return Policy(net, args.features, games.n_actions).to(args.device)


def train(args: argparse.Namespace, agent: Agent) -> list[tuple[int, list[Episode]]]:
    """The loop; answers the episodes that ended in each iteration, with the env steps done by then."""
    per_iteration = args.envs * args.rollout_steps
    iterations = max(1, -(-args.timesteps // per_iteration))
    history: list[tuple[int, list[Episode]]] = []
    with profile("training_total", track_memory=True):
        for iteration in range(1, iterations + 1):
            began = time.perf_counter()
            with profile("training_step"):
                with profile("training_data_collection", track_memory=True):
                    rollout, episodes = agent.collect()
                with profile("training_model_update", track_memory=True):
                    losses = agent.learn(rollout, agent.advantages(rollout))
                with profile("training_log"):
                    history.append((iteration * per_iteration, episodes))
                    if iteration % max(1, iterations // 20) == 0 or iteration == iterations:
                        sps = per_iteration / (time.perf_counter() - began)
                        print(_progress(history, losses.tolist(), sps), flush=True)
            step()
    return history


def _progress(history: list[tuple[int, list[Episode]]], losses: list[float], sps: float) -> str:
    recent = [episode for _, episodes in history[-10:] for episode in episodes]
    policy_loss, value_loss, entropy = losses
    text = f"step {history[-1][0]:>8,} | "
    if recent:
        text += f"return {fmean(e.total for e in recent):6.3f} | solved {fmean(e.solved for e in recent):5.1%} | "
    return text + f"policy loss {policy_loss:7.4f} | value loss {value_loss:.4f} | entropy {entropy:.3f} | SPS {sps:,.0f}"


def play_randomly(rules: Rules, episodes: int, seed: int) -> float:
    """The mean return of a player that rolls a die."""
    rng = random.Random(f"random player {seed}")
    game, returns = Game(rules, rng), []
    while len(returns) < episodes:
        if game.move(rng.randrange(rules.robots * 4))[1]:
            returns.append(game.episode_return)
            game.reset()
    return fmean(returns)


def draw_curve(path: Path, title: str, history: list[tuple[int, list[Episode]]], random_return: float) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    steps = [at for at, episodes in history if episodes]
    returns = [fmean(e.total for e in episodes) for _, episodes in history if episodes]
    smooth = [fmean(returns[max(0, i - 5) : i + 5]) for i in range(len(returns))]
    figure, axes = plt.subplots(figsize=(7, 4), dpi=100, layout="constrained")
    axes.plot(steps, returns, color="#9db8d9", linewidth=0.8, label="mean of the episodes of one iteration")
    axes.plot(steps, smooth, color="#1f4e8c", linewidth=2, label="mean of ten iterations")
    axes.axhline(random_return, color="#b5482a", linestyle="--", label=f"random player ({random_return:.2f})")
    axes.set(xlabel="env steps", ylabel="return per episode", title=title)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.25)
    axes.legend(loc="center right", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    rules = Rules(args.board_size, args.robots, args.corners, args.max_distance, args.max_moves)
    games = Games(rules, args.envs, args.seed, make_observer(args, rules))
    agent = Agent(args, games, make_policy(args, games))

    if args.enable_profiling:
        session = start("ricochet_rgb", out=args.out / "runs", summary_every=args.profiling_summary_freq)
        print(f"profiling into {session}; {HOST_TIMING}")
    history = train(args, agent)
    if args.enable_profiling:
        stop()
        get_profiler().print_summary()
        report = args.out / args.profiling_report
        if get_profiler().save(report):
            print(f"wrote {session}\nwrote {report}")
            print(f"next: python -m profiling.analyzer --input {report} --output analysis.txt\n  or: hotloop report {session}")
    if args.curve:
        random_return = play_randomly(rules, 2_000, args.seed)
        title = f"Ricochet Robots, {args.obs_mode}: PPO with {'a ConvLSTM' if args.convlstm else 'a plain network'}"
        draw_curve(args.out / args.curve, title, history, random_return)
        last = [e.total for _, episodes in history[-10:] for e in episodes]
        print(f"return of the last ten iterations {fmean(last):.3f}, of a random player {random_return:.3f}")
        print(f"wrote {args.out / args.curve}")


if __name__ == "__main__":
    main()
