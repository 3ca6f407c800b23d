"""The training loop: a rollout, an update, now and then an evaluation; first with the teacher, then PPO.

What lives here: the order of things, and the spans the document names. Invariant: training waits for the device in two places
only, the copies to and from the teacher (the document's suspect) and, once per rollout, `device_sync`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotloop import count, get_profiler, profile, start, step, stop

from .advice import Pace, closing_words
from .curve import draw_curve
from .losses import Batch, estimate_advantages, ppo_loss, supervised_loss
from .settings import Settings, list_settings
from .student import ACTIONS, Student, choose
from .teacher import load_teacher
from .tracing import Tracer
from .world import OBSERVATION, World

SUPERVISED, PPO = "supervised", "ppo"
NOTES = {  # below the timing block, which has host times; the session's report tells copying from waiting
    "gpu": "GPU->CPU is host time: it holds the wait for the student's forward pass queued before it, not the copy alone",
    "cpu": "GPU->CPU: student and teacher share the CPU, nothing is copied; parts under 0.1 % are not shown",
}


@dataclass(slots=True)
class Memory:
    """One rollout, on the device: (steps, agents, …)."""

    observations: Tensor
    actions: Tensor
    taught: Tensor
    log_probs: Tensor
    rewards: Tensor
    dones: Tensor
    values: Tensor  # one more than the others: what the last state is worth

    @classmethod
    def make(cls, steps: int, agents: int, device: torch.device) -> Memory:
        floats = (torch.zeros(steps + more, agents, device=device) for more in (0, 0, 0, 1))
        whole = (torch.zeros(steps, agents, dtype=torch.long, device=device) for _ in range(2))
        return cls(torch.zeros(steps, agents, OBSERVATION, dtype=torch.uint8, device=device), *whole, *floats)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Starting and writing a PyTorch trace is no part of training: leave it out of HotLoop's session."""
    profiler = get_profiler()
    recording = profiler.enabled
    if recording:
        profiler.disable()
    try:
        yield
    finally:
        if recording:
            profiler.enable()


class Trainer:
    def __init__(self, settings: Settings, device: torch.device, folder: Path, cache: Path) -> None:
        self.settings, self.device, self.folder = settings, device, folder
        torch.manual_seed(settings.seed)
        trainer, world = settings.trainer, settings.world
        self.agents = trainer.num_envs * world.num_agents
        self.world = World(settings.missions, trainer.num_envs, world.num_agents, world.max_steps, settings.seed, device)
        self.student = Student(trainer.hidden).to(device)
        self.optimizer = torch.optim.Adam(self.student.parameters(), eps=1e-5)
        self.memory = Memory.make(settings.horizon, self.agents, device)
        self.backend, self.teacher = load_teacher(settings.teacher.backend, cache)
        self.teacher_calls: Counter[str] = Counter()  # by phase
        pinned = trainer.pinned_buffers and device.type == "cuda"
        shape = (trainer.num_envs, world.num_agents)
        self.to_teacher = torch.empty(*shape, OBSERVATION, dtype=torch.uint8, pin_memory=pinned)
        self.from_teacher = torch.empty(*shape, dtype=torch.long, pin_memory=pinned)
        self.tracer = Tracer(trainer.profiler, folder, device)
        self.agent_step, self.phase = 0, ""
        self.observations = self.world.observe()
        self.metrics: list[dict[str, Any]] = []
        self.evaluations: list[tuple[int, float]] = []
        if settings.evaluator.evaluate_local:
            envs, seed = settings.evaluator.num_envs, settings.seed + 10_000  # other maps than those it learns on
            self.arena = World(settings.missions, envs, world.num_agents, world.max_steps, seed, device)

    # ---- the loop ----

    def run(self) -> None:
        settings = self.settings
        for iteration in range(-(-settings.trainer.total_timesteps // settings.trainer.batch_size)):
            self._enter_phase(SUPERVISED if self.agent_step < settings.supervised_steps else PPO)
            if settings.evaluator.evaluate_local and iteration % settings.evaluator.epoch_interval == 0:
                self._evaluate()
            traced = self.tracer.active
            begin = time.perf_counter()
            with profile("rollout"):
                self._collect()
            with profile("train"):
                learned = self._update()
            with profile("device_sync"):
                ended, number = self.world.take_finished()
                loss, measure, ended = torch.stack([*learned, ended]).tolist()
            seconds = time.perf_counter() - begin
            with profile("log"):
                self.agent_step += settings.trainer.batch_size
                self._log(seconds, traced, loss, measure, ended / number if number else None)
            with unrecorded():
                self.tracer.step()
            count("env_steps", settings.trainer.batch_size)
            count("samples", settings.trainer.batch_size)
            step()
            if settings.timing_every and len(self.metrics) % settings.timing_every == 0:
                self._explain_block(settings.timing_every)
        with unrecorded():
            self.tracer.end()
        if settings.evaluator.evaluate_local:
            self._evaluate()
        with profile("save"):
            torch.save(self.student.state_dict(), self.folder / "student.pt")

    def _enter_phase(self, phase: str) -> None:
        if phase == self.phase:
            return
        self.phase = phase
        config = self.settings.loss if phase == SUPERVISED else self.settings.ppo
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate
        with unrecorded():
            self.tracer.begin(phase)

    # ---- rollout ----

    @torch.no_grad()
    def _collect(self) -> None:
        memory = self.memory
        shape = (self.world.envs, self.world.agents)
        for t in range(self.settings.horizon):
            seen = self.observations
            with profile("student_forward"):
                logits, values = self._forward(seen.flatten(0, 1))
                actions, log_probs = choose(logits)
            if self.phase == SUPERVISED:
                with profile("teacher_total"):
                    taught = self._ask_teacher(seen.flatten(0, 1))
            with profile("env_step"):
                rewards, due = self.world.step(actions.view(shape))
            if len(due):
                with profile("env_reset"):
                    self.world.reset(due)
                count("episodes", len(due))
                count("resets", len(due))
            with profile("observe"):
                self.observations = self.world.observe()
            with profile("replay_store"):
                memory.observations[t] = seen.flatten(0, 1)
                memory.actions[t], memory.log_probs[t], memory.values[t] = actions, log_probs, values
                if self.phase == SUPERVISED:
                    memory.taught[t] = taught
                memory.rewards[t] = rewards.flatten()
                memory.dones[t] = 0
                for env in due:
                    memory.dones[t].view(shape)[env] = 1
        with profile("student_forward"):
            memory.values[-1] = self._forward(self.observations.flatten(0, 1))[1]

    def _forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.trainer.mixed_precision):
            logits, values = self.student(observations)
        return logits, values

    def _ask_teacher(self, observations: Tensor) -> Tensor:
        """The teacher's action for every agent: one call per environment, on the CPU."""
        with profile("reshape"):
            by_env = observations.view(self.world.envs, self.world.agents, OBSERVATION)
        with profile("GPU->CPU"):
            host = self.to_teacher.copy_(by_env) if self.settings.trainer.pinned_buffers else by_env.cpu()
            rows = host.numpy()
        with profile("nim_calls"):
            actions = [self.teacher(rows[env]) for env in range(self.world.envs)]
        with profile("Stack+Back"):
            stacked = torch.from_numpy(np.stack(actions))
            if self.settings.trainer.pinned_buffers:
                stacked = self.from_teacher.copy_(stacked)
            taught = stacked.to(self.device, torch.long).flatten()
        self.teacher_calls[self.phase] += self.world.envs
        return taught

    # ---- update ----

    def _update(self) -> tuple[Tensor, Tensor]:
        """One pass or more over the rollout; answers the mean loss and the phase's measure (agreement or divergence)."""
        settings, memory = self.settings.trainer, self.memory
        with profile("advantages"):
            advantages = estimate_advantages(memory.rewards, memory.dones, memory.values, settings.gamma, settings.gae_lambda)
            returns = advantages + memory.values[:-1]
            rollout = Batch(
                memory.observations.flatten(0, 1), memory.actions.flatten(), memory.log_probs.flatten(),
                advantages.flatten(), returns.flatten(), memory.taught.flatten(),
            )  # fmt: skip
            losses, measures = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        rounds = 0
        for _ in range(settings.update_epochs):
            with profile("shuffle"):
                parts = torch.randperm(settings.batch_size, device=self.device).split(settings.minibatch_size)
            for rows in parts:
                with profile("loss"):
                    batch = rollout.part(rows)
                    logits, values = self._forward(batch.observations)
                    if self.phase == SUPERVISED:
                        loss, measure = supervised_loss(logits, values, batch, self.settings.loss)
                    else:
                        loss, measure = ppo_loss(logits, values, batch, self.settings.ppo)
                with profile("backward"):
                    self.optimizer.zero_grad()
                    loss.backward()
                with profile("optimizer_step"):
                    torch.nn.utils.clip_grad_norm_(self.student.parameters(), settings.max_grad_norm)
                    self.optimizer.step()
                    losses, measures = losses + loss.detach(), measures + measure
                rounds += 1
        count("updates", rounds)
        return losses / rounds, measures / rounds

    # ---- evaluation and log ----

    def _evaluate(self) -> None:
        with profile("evaluate"):
            self.evaluations.append((self.agent_step, self._play("student")))

    @torch.no_grad()
    def _play(self, who: str) -> float:
        """Mean return of an agent over one episode of every environment of the arena."""
        arena = self.arena
        arena.restart(self.settings.seed)
        for _ in range(arena.max_steps):
            seen = arena.observe()
            if who == "student":
                actions = choose(self._forward(seen.flatten(0, 1))[0])[0].view(arena.envs, arena.agents)
            elif who == "teacher":
                actions = torch.as_tensor(np.stack([self.teacher(rows) for rows in seen.cpu().numpy()])).to(self.device).long()
            else:
                actions = torch.randint(ACTIONS, (arena.envs, arena.agents), device=self.device)
            arena.step(actions)
        return arena.returns.mean().item()

    def _log(self, seconds: float, traced: bool, loss: float, measure: float, ended: float | None) -> None:
        batch = self.settings.trainer.batch_size
        row = {"agent_step": self.agent_step, "phase": self.phase, "sps": batch / seconds, "traced": traced, "loss": loss}
        row |= {"accuracy" if self.phase == SUPERVISED else "divergence": measure, "return": ended}
        self.metrics.append(row)
        with open(self.folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
        if len(self.metrics) % 10 == 0:
            learned = f"accuracy {measure:.1%}" if self.phase == SUPERVISED else f"divergence {measure:.4f}"
            score = f"return {ended:.2f}" if ended is not None else "no episode ended"
            played = f", evaluated {self.evaluations[-1][1]:.2f}" if self.evaluations else ""
            print(
                f"agent_step {self.agent_step:,}  {self.phase}  {learned}  {score}{played}  SPS {row['sps']:,.0f}", flush=True
            )

    def _explain_block(self, rollouts: int) -> None:
        """One line below HotLoop's block: what its host times cannot tell."""
        traced = sum(row["traced"] for row in self.metrics[-rollouts:])
        slowed = f"; {traced} of these {rollouts} rollouts were slowed down by the PyTorch trace" if traced else ""
        print(f"  {NOTES['cpu' if self.device.type == 'cpu' else 'gpu']}{slowed}", flush=True)

    def paces(self) -> list[Pace]:
        """The speed of each phase: the median rollout, without the first one and without those a trace slowed down."""
        out = []
        for phase in (SUPERVISED, PPO):
            rows = [row for row in self.metrics if row["phase"] == phase]
            clean = [row["sps"] for row in rows[1:] if not row["traced"]]
            if clean:
                out.append(Pace(phase, float(np.median(clean)), len(clean)))
        return out


def train(settings: Settings) -> Path:
    """Train, print and write what was asked for; answers the run's folder."""
    device = torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.set_num_threads(settings.threads)
    out = Path(settings.out)
    folder = _make_folder(out / "train_dir", settings.run)
    (folder / "settings.json").write_text(json.dumps(list_settings(settings), indent=1) + "\n")
    trainer = Trainer(settings, device, folder, out / "train_dir" / ".teacher")
    print(f"{settings.run}: {settings.base_missions} on {device}, teacher {trainer.backend}, results in {folder}", flush=True)
    if settings.timing_every:  # only now: making maps and compiling the teacher is no part of the first rollout
        start(name=settings.run, out=out / "runs", print_every=settings.timing_every, device=device.type == "cuda")
    trainer.run()
    session = stop() if settings.timing_every else None
    summary = get_profiler().summary() if session else None
    for line in closing_words(settings, device, trainer.paces(), trainer.teacher_calls[PPO], summary):
        print(line)
    written = [*trainer.tracer.files]
    if trainer.evaluations:
        references = {who: trainer._play(who) for who in ("random", "teacher")}
        written.append(
            draw_curve(folder / "curve.png", trainer.metrics, trainer.evaluations, references, settings.supervised_steps)
        )
        print("\nReturn per agent and episode: " + ", ".join(
            [f"{who} {value:.2f}" for who, value in references.items()] + [f"student {trainer.evaluations[-1][1]:.2f}"]
        ))  # fmt: skip
    for path in written:
        print(f"wrote {path}" + (" (open it in https://ui.perfetto.dev or chrome://tracing)" if path.suffix == ".json" else ""))
    if session:
        print(f"wrote {session}\nnext: hotloop report {session}")
    return folder


def _make_folder(parent: Path, run: str) -> Path:
    """A new folder RUN_TIME; two runs that start in the same second get different ones."""
    base, number = f"{run}_{time.strftime('%Y%m%d-%H%M%S')}", 1
    while True:
        folder = parent / (base if number == 1 else f"{base}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
