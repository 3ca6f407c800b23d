"""Learn to win Pokémon battles that a server in another process referees; environments are stepped by a thread pool.

    python train.py --profile --profile-name session_name
    python train.py --device cpu --episodes 10 --profile --profile-name debug_test

An episode is one battle. A round plays `battles_per_update` of them, `threads` at once; then the agent learns from them.
Settings: config/train_config.yml, then flags; `--help` explains them. What is measured, and what it printed here: README.md.
"""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

import torch
from battle.agent import Agent, Episode, LearningSettings, learn
from battle.client import BattleEnv, BattleServer, ServerGoneError
from battle.curve import save_curve
from battle.settings import BadSettingsError, Settings, read_settings
from src.profiling import get_global_profiler, network_block, save_session_logs

from hotloop import count, profile, start, step, stop

BASELINE_BATTLES = 400


def play(env: BattleEnv, agent: Agent | None, seed: int) -> Episode:
    """One battle from reset to the end; without an agent every allowed action is equally likely."""
    episode, luck = Episode(), random.Random(seed)
    with profile("env_reset"):
        observation, mask = env.reset(seed)
    terminated = truncated = False
    while not (terminated or truncated):
        with profile("agent_action_selection"):
            if agent is None:
                action, log_prob = luck.choice([i for i, allowed in enumerate(mask) if allowed]), 0.0
            else:
                action, log_prob = agent.select_action(observation, mask, luck)
        with profile("agent_value_calculation"):
            value = agent.calculate_value(observation) if agent else 0.0
        with profile("env_step"):
            after, reward, terminated, truncated, info, next_mask = env.step(action)
        episode.add(observation, mask, action, log_prob, value, reward)
        observation, mask, episode.won = after, next_mask, info["won"]
    if truncated and agent:
        with profile("agent_value_calculation"):
            episode.last_value = agent.calculate_value(observation)
    return episode


class Arena:
    """The environments and the threads that step them: one of each per battle at a time."""

    def __init__(self, address: str, settings: Settings, closing: ExitStack) -> None:
        self.free: SimpleQueue[BattleEnv] = SimpleQueue()
        for _ in range(settings.threads):
            env = BattleEnv(address, settings.max_turns, settings.hp_reward)
            closing.callback(env.close)
            self.free.put(env)
        self.pool = closing.enter_context(ThreadPoolExecutor(settings.threads, thread_name_prefix="env"))

    def play_all(self, agent: Agent | None, seeds: list[int]) -> list[Episode]:
        """The battles of these seeds, in their order, whichever thread played them."""

        def task(seed: int) -> Episode:
            env = self.free.get()
            try:
                return play(env, agent, seed)
            finally:
                self.free.put(env)

        with profile("env_parallel_execution"):
            return list(self.pool.map(task, seeds))


def train(settings: Settings, arena: Arena, agent: Agent) -> list[bool]:
    """Rounds of battles and updates; answers which battles were won."""
    learning = LearningSettings(**{name: getattr(settings, name) for name in LearningSettings.__slots__})
    generator = torch.Generator().manual_seed(settings.seed)
    wins: list[bool] = []
    first_seed = settings.seed * 1_000_000_007
    while len(wins) < settings.episodes:
        began_s = time.perf_counter()
        battles = min(settings.battles_per_update, settings.episodes - len(wins))
        seeds = [first_seed + len(wins) + i for i in range(battles)]
        episodes = arena.play_all(agent, seeds)
        steps = sum(len(episode.actions) for episode in episodes)
        wins += [episode.won for episode in episodes]
        count("episodes", battles)
        count("resets", battles)
        count("env_steps", steps)
        learn(agent, episodes, learning, generator)
        rate = steps / (time.perf_counter() - began_s)
        won = sum(episode.won for episode in episodes) / battles
        print(f"episode {len(wins):>6,}/{settings.episodes:,}  win rate {won:6.1%}  {rate:7,.0f} env steps/s", flush=True)
        step()
    return wins


def run(settings: Settings) -> None:
    out, device = Path(settings.out), choose_device(settings.device)
    torch.set_num_threads(settings.torch_threads)
    torch.manual_seed(settings.seed)
    agent = Agent(settings.hidden, settings.learning_rate, device)
    with ExitStack() as closing:
        server = closing.enter_context(BattleServer(settings.server, settings.showdown_dir))
        arena = Arena(server.address, settings, closing)
        baseline: list[bool] = []
        if settings.curve:  # before the recording: it is not part of training
            seeds = [settings.seed * 1_000_000_007 - 1 - i for i in range(BASELINE_BATTLES)]
            baseline = [episode.won for episode in arena.play_all(None, seeds)]
        profiler = get_global_profiler() if settings.profile else None
        if profiler:
            start(settings.profile_name, out / "runs", system=True)
        wins = train(settings, arena, agent)
        session = stop()
    print_result(wins, baseline)
    if settings.curve:
        print(f"wrote {save_curve(out / settings.curve, wins, baseline, settings.battles_per_update)}")
    if profiler:
        print()
        profiler.print_episodes()
        print("\n" + network_block())
        if device.type != "cpu":
            print("Times are the host's: work queued on the device shows up where the host waits for it.")
        files = save_session_logs(settings.profile_name, out / "logs" / "profiling") or ()
        print()
        for file in (*files, session):
            print(f"wrote {file}")
        print(f"next: hotloop report {session}")


def print_result(wins: list[bool], baseline: list[bool]) -> None:
    tenth = max(1, len(wins) // 10)
    shares = {"first tenth": wins[:tenth], "last tenth": wins[-tenth:]} | ({"random player": baseline} if baseline else {})
    print("win rate: " + ", ".join(f"{name} {sum(won) / len(won):.1%}" for name, won in shares.items()))


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise BadSettingsError(f"torch has no device {name!r} here; try --device cpu.") from None
    return device


def main() -> int:
    try:
        run(read_settings())
    except BadSettingsError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except ServerGoneError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
