"""A short training whose end is watched: what the measurements after it touch. `python train.py KIND FILE`

Kinds: ppo and dqn (stable-baselines3), recurrent, pixels, large (a network of 40 MB). FILE gets what was seen while HotLoop
measured: files, sockets and processes that were asked for, env steps, memory.
"""

import json
import resource
import sys
import time

import gymnasium as gym
import numpy as np
import torch

torch.set_num_threads(1)
TOUCHES = ("open", "socket", "subprocess", "os.fork", "os.exec", "os.posix_spawn", "os.system", "os.remove", "os.mkdir")


class Walk(gym.Env):
    """Steps are counted."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = gym.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1, 8).astype(np.float32)
        return self.at, {}

    def step(self, action):
        Walk.steps += 1
        self.at = np.clip(self.at + 0.1 * (action - 0.5), -1, 1).astype(np.float32)
        return self.at, float(self.at.sum()), Walk.steps % 100 == 0, False, {}


def train(kind):
    if kind in ("ppo", "dqn"):
        from stable_baselines3 import DQN, PPO

        model = PPO("MlpPolicy", Walk(), n_steps=512, seed=1) if kind == "ppo" else DQN("MlpPolicy", Walk(), seed=1)
        model.learn(3000)
        return sum(p.sum().item() for p in model.policy.parameters())
    shape = {"recurrent": (4, 8), "pixels": (3, 40, 40), "large": (8,)}[kind]
    net = make_net(kind)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    env, obs = Walk(), torch.zeros(1, *shape)
    env.reset(seed=1)
    for _ in range(150):
        with torch.no_grad():
            action = int(net(obs).argmax())
        env.step(action)
        loss = net(torch.rand(8, *shape)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def make_net(kind):
    nn = torch.nn
    if kind == "pixels":
        return nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.Flatten(), nn.Linear(32 * 64, 2))
    if kind == "large":
        return nn.Sequential(nn.Linear(8, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU(), nn.Linear(3000, 2))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.core, self.head = nn.GRU(8, 32, batch_first=True), nn.Linear(32, 2)

        def forward(self, x):
            return self.head(self.core(x)[0][:, -1])

    return Recurrent()


def watch(file):
    """Under `hotloop run`: around the measurements, what is asked of the system."""
    probes = sys.modules.get("hotloop.integrations.probes")
    if probes is None:
        return
    measure, seen, on = probes._Probe.measure, [], []
    sys.addaudithook(lambda event, args: seen.append(event) if on and event.startswith(TOUCHES) else None)

    def watched(self, *args):
        steps, peak = Walk.steps, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.perf_counter()
        on.append(1)
        try:
            measure(self, *args)
        finally:
            on.clear()
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            facts = {"seconds": time.perf_counter() - begin, "touched": seen, "steps": Walk.steps - steps,
                     "memory": after / peak, "curves": len(self.curves), "notes": self.notes}  # fmt: skip
            with open(file, "w") as out:
                json.dump(facts, out)

    probes._Probe.measure = watched


if __name__ == "__main__":
    watch(sys.argv[2])
    torch.manual_seed(1)
    print("result", train(sys.argv[1]), "steps", Walk.steps)
    sys.exit(3)
