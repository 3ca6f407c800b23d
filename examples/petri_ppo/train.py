"""PPO on TorchRL learns to schedule a job shop that is played as a timed Petri net.

    python train.py                                  # learns in two minutes; writes petri_ppo_curve.png and a HotLoop session
    python train.py --batches 5 --no-turbo           # five batches with the plain environment

What lives here: the networks and the loop, on TorchRL's collector, GAE, replay buffer and clipped loss. The spans carry the
names of the report; `spans.py` says how they tell TorchRL's time from ours.
"""

from __future__ import annotations

import argparse
import logging
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from env import PetriEnv
from settings import Settings, add_flags
from shop import FEATURES, Shops, make_shops
from spans import called_back, framework
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import MaskedCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from hotloop import count, get_profiler, profile, profile_function, start, step, stop

logging.getLogger("torchrl").setLevel(logging.WARNING)


def choose_device(settings: Settings) -> torch.device:
    return torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))


# ---- networks: the same small one looks at every row, so that jobs may come in any order ----


class Network(nn.Sequential):
    """A sequence of layers whose time is the tensor runtime's."""

    forward = called_back(profile_function("network_forward")(nn.Sequential.forward))


class BesideMean(nn.Module):
    """Each row, and beside it the mean over all rows."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.cat((rows, rows.mean(-2, keepdim=True).expand_as(rows)), -1)


class Mean(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.mean(-2)


class Policy(ProbabilisticActor):
    """Chooses a row among those that may be chosen."""

    forward = called_back(framework("policy_forward", ProbabilisticActor.forward))

    def __init__(self, hidden: int) -> None:
        scores = Network(
            nn.Linear(len(FEATURES), hidden), nn.Tanh(), BesideMean(), nn.Linear(2 * hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, 1), nn.Flatten(-2),
        )  # fmt: skip
        super().__init__(
            TensorDictModule(scores, ["observation"], ["logits"]),
            in_keys={"logits": "logits", "mask": "action_mask"},
            out_keys=["action"],
            distribution_class=MaskedCategorical,
            return_log_prob=True,
        )


def make_critic(hidden: int) -> ValueOperator:
    layers = nn.Linear(len(FEATURES), hidden), nn.Tanh(), Mean(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
    return ValueOperator(Network(*layers), ["observation"])


# ---- the loop ----


class Trainer:
    """PPO, one `batch()` at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = s = settings
        torch.set_num_threads(s.threads)
        torch.manual_seed(s.seed)
        device = choose_device(s)
        self.env = PetriEnv(s.turbo, s.shops, s.size, s.seed, device=None if device.type == "cpu" else "cpu")
        self.policy, critic = Policy(s.hidden).to(device), make_critic(s.hidden).to(device)
        devices = {} if device.type == "cpu" else {"policy_device": device, "env_device": "cpu", "storing_device": device}
        self.collector = Collector(
            self.env, self.policy, frames_per_batch=s.frames_per_batch, total_frames=-1, track_traj_ids=False,
            use_buffers=False, auto_register_policy_transforms=False, **devices,
        )  # fmt: skip
        advantage = GAE(gamma=1.0, lmbda=s.gae_lambda, value_network=critic, average_gae=False)
        loss = ClipPPOLoss(
            self.policy, critic, clip_epsilon=s.clip, entropy_coeff=s.entropy, critic_coeff=0.5, normalize_advantage=True,
        )  # fmt: skip
        buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(s.frames_per_batch, device=device),
            sampler=SamplerWithoutReplacement(),
            batch_size=s.minibatch,
        )
        self.parameters = list(loss.parameters())
        optimizer = torch.optim.Adam(self.parameters, s.learning_rate)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, s.batches * s.updates_per_batch)

        self.collect = framework("data_collection", self.collector.next, own="tensordict_ops")
        self.estimate_advantage = framework("gae_computation", advantage.forward)
        self.extend, self.sample = (profile_function("replay_buffer_ops")(f) for f in (buffer.extend, buffer.sample))
        self.losses = framework("loss_computation", loss.forward)
        self.backward = profile_function("backward_pass")(torch.Tensor.backward)
        self.clip_gradients = profile_function("gradient_clipping")(nn.utils.clip_grad_norm_)
        self.update = [profile_function("optimizer_step")(f) for f in (optimizer.step, schedule.step, optimizer.zero_grad)]

    def batch(self) -> list[float]:
        """Collect, learn; answers makespan / lower bound of the schedules that were finished meanwhile."""
        s = self.settings
        data = self.collect()
        with torch.no_grad():
            self.estimate_advantage(data)
        self.extend(data.reshape(-1))
        for _ in range(s.updates_per_batch):
            part = self.sample()
            with profile("training_loop"):
                losses = self.losses(part)
                self.backward(losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"])
                self.clip_gradients(self.parameters, 0.5)
                for update in self.update:
                    update()
        finished, self.env.shops.finished = self.env.shops.finished, []
        count("env_steps", s.frames_per_batch)
        count("episodes", len(finished))
        count("updates", s.updates_per_batch)
        count("samples", s.updates_per_batch * s.minibatch)
        step()
        return finished


# ---- how good is it? ----


def play(shops: Shops, choose: Any, episodes: int) -> float:
    """The mean makespan / lower bound of schedules made by `choose(shops)`, which answers a row per shop."""
    while len(shops.finished) < episodes:
        shops.step(choose(shops))
        if shops.done.any():
            shops.reset(shops.done.nonzero()[0].tolist())
    return statistics.fmean(shops.finished[:episodes])


def at_random(seed: int) -> Any:
    source = np.random.default_rng(seed)
    return lambda shops: (source.random(shops.mask.shape) * shops.mask).argmax(1).tolist()


def most_work_left(shops: Shops) -> list[int]:
    """The textbook rule: never wait while a job can start, and start the one with the most work ahead."""
    work = shops.observation[..., FEATURES.index("work_after")] + 1.0
    work[:, -1] = 0.5
    return (work * shops.mask).argmax(1).tolist()


def by_policy(policy: Policy, device: torch.device) -> Any:
    def choose(shops: Shops) -> list[int]:
        seen = {"observation": torch.from_numpy(shops.observation), "action_mask": torch.from_numpy(shops.mask)}
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            return policy(TensorDict(seen, [len(shops)]).to(device))["action"].tolist()

    return choose


def draw_curve(file: Path, curve: Sequence[tuple[int, float]], lines: dict[str, float]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot([x for x, _ in curve], [y for _, y in curve], color="tab:blue", label="PPO, while it learns")
    for (label, value), style in zip(lines.items(), ("--", ":", "-."), strict=False):
        axes.axhline(value, color="0.35", linestyle=style, linewidth=1.2, label=f"{label}: {value:.2f}")
    axes.set_xlabel("decisions (env steps)")
    axes.set_ylabel("return = −makespan / lower bound")
    axes.legend(loc="center right")
    axes.grid(alpha=0.25)
    figure.savefig(file, dpi=100)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser)
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the session and the curve (default: here)")
    parser.add_argument("--episodes", type=int, default=200, metavar="N", help="schedules to compare at the end (default: 200)")
    given = vars(parser.parse_args(arguments))
    out, episodes = given.pop("out"), given.pop("episodes")
    try:
        settings = Settings(**given)
    except ValueError as error:
        parser.error(str(error))
    out.mkdir(parents=True, exist_ok=True)

    trainer = Trainer(settings)
    curve: list[tuple[int, float]] = []
    session = start(name="petri_ppo", out=out / "runs")
    recent: list[float] = []
    for batch in range(1, settings.batches + 1):
        recent += trainer.batch()
        recent = recent[-200:]
        if recent:
            curve.append((batch * settings.frames_per_batch, -statistics.fmean(recent)))
            if batch % 10 == 0 or batch == settings.batches:
                print(f"batch {batch:>4}  decisions {curve[-1][0]:>7,}  return {curve[-1][1]:.3f}", flush=True)
    stop()
    print()
    get_profiler().print_components()

    choices = {
        "random": at_random(settings.seed),
        "most work left": most_work_left,
        "learned, greedy": by_policy(trainer.policy, choose_device(settings)),
    }
    fresh = lambda: make_shops(True, settings.shops, settings.size, settings.seed + 1)
    lines = {name: -play(fresh(), choose, episodes) for name, choose in choices.items()}
    print(f"\nreturn over {episodes} schedules with new orders (-1 cannot be beaten):")
    for name, value in lines.items():
        print(f"  {name:<16} {value:.3f}")
    picture = out / "petri_ppo_curve.png"
    draw_curve(picture, curve, lines)
    print(f"\nwrote {picture} and {session}\nnext: hotloop report {session}")


if __name__ == "__main__":
    main()
