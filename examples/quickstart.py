"""Q-learning on a windy grid, eight environments stepped by a thread pool; standard library and HotLoop only.

    python examples/quickstart.py

Every environment "renders" by sleeping a little, as a simulator behind a socket would, so you see waiting apart from work,
eight threads that never exceed 100 % of the wall time, and iterations with steps per second.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

from hotloop import count, get_profiler, profile, profile_function, start, step, stop

WIDTH, HEIGHT, GOAL = 10, 7, (7, 3)
WIND = (0, 0, 0, 1, 1, 1, 2, 2, 1, 0)
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))


class WindyGrid:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.reset()

    def reset(self) -> tuple[int, int]:
        self.at = (0, self.random.randrange(HEIGHT))
        return self.at

    def step(self, action: int) -> tuple[tuple[int, int], float, bool]:
        (x, y), (dx, dy) = self.at, MOVES[action]
        with profile("simulator"):
            time.sleep(0.0002)
        self.at = (min(WIDTH - 1, max(0, x + dx)), min(HEIGHT - 1, max(0, y + dy - WIND[x])))
        return self.at, -1.0, self.at == GOAL


class Agent:
    def __init__(self) -> None:
        self.q = {(x, y): [0.0] * 4 for x in range(WIDTH) for y in range(HEIGHT)}

    @profile_function("act")
    def act(self, state: tuple[int, int], explore: float) -> int:
        values = self.q[state]
        return random.randrange(4) if random.random() < explore else values.index(max(values))

    @profile_function("learn", track_memory=True)
    def learn(self, batch: list[tuple[tuple[int, int], int, float, tuple[int, int], bool]]) -> None:
        for state, action, reward, after, done in batch:
            target = reward + (0.0 if done else 0.97 * max(self.q[after]))
            self.q[state][action] += 0.3 * (target - self.q[state][action])


def main(iterations: int = 60, envs: int = 8, horizon: int = 32) -> None:
    random.seed(1)
    agent, worlds = Agent(), [WindyGrid(i) for i in range(envs)]

    def rollout(world: WindyGrid, explore: float) -> list[tuple[tuple[int, int], int, float, tuple[int, int], bool]]:
        batch = []
        for _ in range(horizon):
            state = world.at
            action = agent.act(state, explore)
            with profile("env_step"):
                after, reward, done = world.step(action)
            batch.append((state, action, reward, after, done))
            if done:
                count("episodes")
                world.reset()
        return batch

    with ThreadPoolExecutor(envs) as pool:
        for iteration in range(iterations):
            explore = max(0.05, 1 - iteration / 30)
            with profile("collect"):
                batches = list(pool.map(rollout, worlds, [explore] * envs))
            count("env_steps", envs * horizon)
            for batch in batches:
                agent.learn(batch)
                count("updates", len(batch))
            step()


if __name__ == "__main__":
    path = start(name="quickstart")
    main()
    get_profiler().print_summary()
    stop()
    print(f"\nwrote {path}\nnext: hotloop report {path}")
