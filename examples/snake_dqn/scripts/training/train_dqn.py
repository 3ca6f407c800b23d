"""DQN over vectorised Snake; every suspect of the investigation is a setting.

What lives here: the settings, the trainer and its metrics. The loop is select, step, push, train, as in the document, each a
span. Invariant: a vector step counts as `num_envs` environment steps, everywhere.
"""

from __future__ import annotations

import copy
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from core.environment_vectorized import ACTIONS, VectorizedSnakeEnv
from core.replay_buffer import DeviceReplayBuffer, ReplayBuffer
from torch import Tensor, nn

from hotloop import count, get_profiler, profile, step


def setting(default: Any, help: str, **more: Any) -> Any:
    """A field that is also a flag: `train_steps` becomes `--train-steps`; `more` goes to argparse."""
    return field(default=default, metadata={"help": help, "flag": more})


def parse_flood_fill(text: str) -> str | int:
    if text in ("off", "every", "cache"):
        return text
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is none of off, every, cache, or a number of steps from 1 up")


def parse_train_steps(text: str) -> str | int:
    if text == "auto" or text.isdigit():
        return text if text == "auto" else int(text)
    raise ArgumentTypeError(f"{text!r} is neither auto nor a number of training steps")


@dataclass(frozen=True, slots=True)
class Settings:
    # how long
    episodes: int = setting(1024, "stop after this many episodes")
    env_steps: int = setting(0, "stop after this many environment steps instead (equal work, however long episodes get)")
    # the suspects
    envs: int = setting(256, "games played at once")
    push: str = setting(
        "loop",
        "into the replay buffer: loop (a transfer per item), items (option B: states at once, the rest item by item), "
        "rows (test 1C: five transfers, then row by row), batch (option A: push_batch), device (the buffer lives on the "
        "training device)",
        choices=("loop", "items", "rows", "batch", "device"),
    )
    train_steps: str | int = setting(
        "auto", "training steps per vector step; auto: envs // 4, 0: none (test 1A)", type=parse_train_steps
    )
    train_every: int = setting(1, "train at every Nth vector step only (test C)")
    flood_fill: str | int = setting(
        "off", "room behind each move as a feature: off, every (step), N (every N steps), cache", type=parse_flood_fill
    )
    log: str = setting(
        "normal",
        "quiet (no metrics, no lines), normal, heavy (every number read back and printed at every step)",
        choices=("quiet", "normal", "heavy"),
    )
    # the game and the agent
    board: int = setting(10, "cells along each side")
    hidden: int = setting(128, "units of each of the two hidden layers")
    buffer: int = setting(100_000, "transitions kept")
    batch: int = setting(64, "transitions of one training step")
    lr: float = setting(1e-3, "Adam's learning rate")
    gamma: float = setting(0.95, "discount per step")
    target_every: int = setting(500, "training steps between two copies into the target network")
    explore: float = setting(0.3, "share of the run in which epsilon falls from 1 to its end")
    epsilon_end: float = setting(0.01, "random moves after that")
    # how
    sync_every: int = setting(8, "vector steps between two reads of finished episodes from the device")
    seed: int = setting(1, "seed of everything random")
    device: str = setting("cuda" if torch.cuda.is_available() else "cpu", "where games and networks live")
    threads: int = setting(1, "threads PyTorch may use on the CPU; networks this small lose with more")
    single_step: int = setting(0, "print the timing of this one vector step (test 1D); the mean of all is printed anyway")

    @property
    def num_train_steps(self) -> int:
        return max(1, self.envs // 4) if self.train_steps == "auto" else int(self.train_steps)


class Metrics:
    """Scores, lengths and losses; the document's suspect 5 when every number is fetched by itself."""

    def __init__(self) -> None:
        self.scores: list[int] = []
        self.ended_at: list[int] = []  # environment steps played when the episode was recorded
        self.losses: list[float] = []

    def add_episode(self, score: int, at_step: int) -> None:
        self.scores.append(score)
        self.ended_at.append(at_step)

    def add_loss(self, loss: float) -> None:
        self.losses.append(loss)

    def recent(self, n: int = 1000) -> float:
        """Mean score of the last `n` episodes."""
        last = self.scores[-n:]
        return sum(last) / len(last) if last else float("nan")


class DQNTrainer:
    def __init__(self, settings: Settings, make_network: Callable[[int, int, int], nn.Module]) -> None:
        self.settings = s = settings
        torch.set_num_threads(s.threads)
        torch.manual_seed(s.seed)
        self.num_envs = s.envs
        self.device = torch.device(s.device)
        self.env = VectorizedSnakeEnv(s.envs, s.board, s.flood_fill, s.device, s.seed)
        self.online = make_network(self.env.num_features, s.hidden, len(ACTIONS)).to(self.device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=s.lr)
        kind = DeviceReplayBuffer if s.push == "device" else ReplayBuffer
        self.replay_buffer = kind(s.buffer, self.env.num_features, self.device, s.seed)
        self.push = PUSHES[s.push]
        self.random = torch.Generator(self.device).manual_seed(s.seed + 1)
        self.metrics = Metrics()
        self.total_steps = self.vector_steps = self.episode = self.updates = self.finished_steps = 0
        self._pending: list[dict[str, Tensor]] = []  # episodes that ended on the device and were not read yet
        self._losses: list[Tensor] = []
        self._printed_at, self._printed_steps, self._printed_episode = time.perf_counter(), 0, 0

    # ---- the loop ----

    def train(self, verbose: bool = True) -> None:
        """Train until the episodes, or the environment steps, are done."""
        s = self.settings
        states = self.env.reset()
        count("resets", self.num_envs)
        while self.progress() < 1:
            timed = s.single_step == self.vector_steps + 1
            before = read_totals() if timed else {}
            with profile("select"):
                actions = self.select_actions(states)
            with profile("step"):
                next_states, rewards, dones, info = self.env.step(actions)
            with profile("push"):
                self.push(self, states, actions, rewards, next_states, dones)
            with profile("train"):
                trained = self.train_now()
            self.vector_steps += 1
            self.total_steps += self.num_envs  # not 1: the original's largest bug
            with profile("log"):
                self.record(info, verbose)
            count("env_steps", self.num_envs)
            count("updates", trained)
            count("samples", trained * s.batch)
            step()
            states = next_states
            if timed:
                print_single_step(f"vector step {s.single_step}", read_totals(), before)
        with profile("log"):
            self.read_episodes(verbose=False)

    def progress(self) -> float:
        """How much of the run is done, from 0 to 1."""
        s = self.settings
        done, wanted = (self.total_steps, s.env_steps) if s.env_steps else (self.episode, s.episodes)
        return min(1.0, done / wanted)

    def epsilon(self) -> float:
        s = self.settings
        return max(s.epsilon_end, 1 - (1 - s.epsilon_end) * self.progress() / s.explore)

    @torch.no_grad()
    def select_actions(self, states: Tensor) -> Tensor:
        """Greedy, but random with probability epsilon; decided on the device."""
        greedy = self.online(states).argmax(1)
        anything = torch.randint(len(ACTIONS), greedy.shape, generator=self.random, device=self.device)
        explore = torch.rand(greedy.shape, generator=self.random, device=self.device) < self.epsilon()
        return torch.where(explore, anything, greedy)

    def train_now(self) -> int:
        """This vector step's training steps; answers how many."""
        s = self.settings
        # The document asks `total_steps % 4 == 0`: always true once total_steps counts every game, so vector steps it is.
        if len(self.replay_buffer) < s.batch or self.vector_steps % s.train_every:
            return 0
        for _ in range(s.num_train_steps):
            loss = self.train_step()
            if s.log == "heavy":
                self.metrics.add_loss(loss.item())
            elif s.log == "normal":
                self._losses.append(loss)
        return s.num_train_steps

    def train_step(self) -> Tensor:
        """One gradient step on one batch; answers the loss, still on the device."""
        s = self.settings
        with profile("sample"):
            states, actions, rewards, next_states, dones = self.replay_buffer.sample(s.batch)
        with profile("loss"):
            values = self.online(states).gather(1, actions[:, None])[:, 0]
            with torch.no_grad():
                best = self.target(next_states).amax(1)
                wanted = rewards + s.gamma * best * ~dones
            loss = nn.functional.smooth_l1_loss(values, wanted)
        with profile("backward"):
            self.optimizer.zero_grad()
            loss.backward()
        with profile("optimizer_step"):
            self.optimizer.step()
            self.updates += 1
            if self.updates % s.target_every == 0:
                self.target.load_state_dict(self.online.state_dict())
        return loss.detach()

    # ---- metrics ----

    def record(self, info: dict[str, Tensor], verbose: bool) -> None:
        """Heavy logging reads every number by itself; otherwise what ended stays on the device for `sync_every` steps."""
        s = self.settings
        if s.log == "heavy":
            ended = 0
            for i in range(self.num_envs):
                if (length := info["length"][i].item()) > 0:
                    ended += 1
                    self.finished_steps += length
                    self.metrics.add_episode(info["score"][i].item(), self.total_steps)
            self._add_episodes(ended)
            if verbose:
                self.print_line()
            return
        self._pending.append(info)
        if len(self._pending) >= s.sync_every:
            self.read_episodes(verbose)

    def read_episodes(self, verbose: bool) -> None:
        """Read the episodes that ended since the last time: one transfer for all of them."""
        if not self._pending:
            return
        quiet = self.settings.log == "quiet"
        lengths = torch.stack([info["length"] for info in self._pending])
        kept = lengths[None] if quiet else torch.stack([lengths, torch.stack([info["score"] for info in self._pending])])
        lengths, *scores = kept.cpu()
        ended = lengths > 0
        self.finished_steps += int(lengths.sum())
        self._pending.clear()
        self._add_episodes(int(ended.sum()))
        if quiet:
            return
        for score in scores[0][ended].tolist():
            self.metrics.add_episode(score, self.total_steps)
        if self._losses:
            for loss in torch.stack(self._losses).tolist():
                self.metrics.add_loss(loss)
            self._losses.clear()
        if verbose and time.perf_counter() - self._printed_at > 5:
            self.print_line()

    def _add_episodes(self, ended: int) -> None:
        self.episode += ended
        count("episodes", ended)
        count("resets", ended)

    def print_line(self) -> None:
        now = time.perf_counter()
        rate = (self.total_steps - self._printed_steps) / (now - self._printed_at)
        recent = max(1, self.episode - self._printed_episode)
        losses = self.metrics.losses[-100:] or [float("nan")]
        print(
            f"env steps {self.total_steps:>10,}  episodes {self.episode:>7,}  score {self.metrics.recent(recent):6.2f}  "
            f"loss {sum(losses) / len(losses):.4f}  epsilon {self.epsilon():.2f}  {rate:,.0f} env steps/s",
            flush=True,
        )
        self._printed_at, self._printed_steps, self._printed_episode = now, self.total_steps, self.episode

    def print_sanity_check(self) -> None:
        """Phase 3 of the document, and two identities that a wrong count cannot meet."""
        running = self.env.unfinished_steps()
        print("SANITY CHECK")
        print(f"Total environment steps: {self.total_steps}")
        print(f"Episodes completed: {self.episode}")
        print(f"Steps per episode (avg): {self.total_steps / max(1, self.episode):.1f}")
        total = self.vector_steps * self.num_envs
        print(f"  {self.vector_steps} vector steps x {self.num_envs} games = {total}: {agree(total, self.total_steps)}")
        total = self.finished_steps + running
        parts = f"{self.finished_steps} in finished episodes + {running} in running ones"
        print(f"  {parts} = {total}: {agree(total, self.total_steps)}")
        flood = self.env.flood
        if flood is not None and flood.asked:
            print(f"  flood fill: {flood.asked} answers from {flood.searched} searches")


def agree(found: int, expected: int) -> str:
    return "agrees" if found == expected else f"WRONG, expected {expected}"


# ---- suspect 1: into the replay buffer ----


def push_loop(
    trainer: DQNTrainer, states: Tensor, actions: Tensor, rewards: Tensor, next_states: Tensor, dones: Tensor
) -> None:
    """The document's line 350: five transfers per game."""
    for i in range(trainer.num_envs):
        trainer.replay_buffer.push(
            states[i].cpu().numpy(), actions[i].item(), rewards[i].item(), next_states[i].cpu().numpy(), dones[i].item()
        )


def push_items(
    trainer: DQNTrainer, states: Tensor, actions: Tensor, rewards: Tensor, next_states: Tensor, dones: Tensor
) -> None:
    """Option B: the states at once, three items per game."""
    with profile("push_transfer"):
        states_np, next_states_np = states.cpu().numpy(), next_states.cpu().numpy()
    with profile("push_store"):
        for i in range(trainer.num_envs):
            trainer.replay_buffer.push(states_np[i], actions[i].item(), rewards[i].item(), next_states_np[i], dones[i].item())


def push_rows(trainer: DQNTrainer, *columns: Tensor) -> None:
    """Test 1C: five transfers, then row by row."""
    with profile("push_transfer"):
        arrays = [column.cpu().numpy() for column in columns]
    with profile("push_store"):
        for row in zip(*arrays, strict=True):
            trainer.replay_buffer.push(*row)


def push_batch(trainer: DQNTrainer, *columns: Tensor) -> None:
    """Option A: five transfers, five slice assignments."""
    with profile("push_transfer"):
        arrays = [column.cpu().numpy() for column in columns]
    with profile("push_store"):
        trainer.replay_buffer.push_batch(*arrays)


def push_device(trainer: DQNTrainer, *columns: Tensor) -> None:
    """No transfer at all."""
    trainer.replay_buffer.push_batch(*columns)


PUSHES = {"loop": push_loop, "items": push_items, "rows": push_rows, "batch": push_batch, "device": push_device}


# ---- test 1D: the single step ----

PARTS = ("select", "step", "push", "train")


def read_totals() -> dict[str, float]:
    """Seconds in each part so far."""
    operations = get_profiler().summary()["operations"]
    return {part: operations.get(part, {}).get("total_time", 0.0) for part in PARTS}


def print_single_step(title: str, after: dict[str, float], before: dict[str, float] | None = None, steps: int = 1) -> None:
    """The document's line, from the spans."""
    before = before or dict.fromkeys(PARTS, 0.0)
    times = [f"{part.title()}: {(after[part] - before[part]) / max(1, steps):.4f}s" for part in PARTS]
    print(f"SINGLE STEP ({title})\n{', '.join(times)}")
