"""Expected SARSA with a linear-quadratic network on MountainCar, with a run log on disk."""

import logging
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
log = logging.getLogger("mountain")


def set_up_log(folder):
    handler = logging.FileHandler(os.path.join(folder, "run.log"))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(funcName)s:%(lineno)d %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO if FIXED else logging.DEBUG)
    log.propagate = False


class Features(nn.Module):
    def __init__(self, centres=8):
        super().__init__()
        grid = torch.linspace(-1, 1, centres)
        self.register_buffer("grid", torch.cartesian_prod(grid, grid))
        self.register_buffer("scale", torch.tensor([0.9, 0.07]))
        self.out = nn.Linear(centres * centres, 3, bias=False)

    def forward(self, obs):
        x = (obs - torch.tensor([-0.3, 0.0])) / self.scale
        return self.out(torch.exp(-8 * (x[..., None, :] - self.grid).square().sum(-1)))


def choose(q, eps, rng):
    return int(rng.integers(3)) if rng.random() < eps else int(q.argmax())


def record_step(t, net, obs, q, action, reward, nxt):
    if log.isEnabledFor(logging.DEBUG):
        log.debug(f"step {t} obs={obs} q={q} action={action} reward={reward} next={nxt}")
        log.debug(f"weights {net.out.weight.detach().numpy()[:, :4]}")


def learn(net, opt, batch):
    s = torch.from_numpy(np.stack([b[0] for b in batch]))
    a = torch.tensor([b[1] for b in batch])
    r = torch.tensor([b[2] for b in batch], dtype=torch.float32)
    s2 = torch.from_numpy(np.stack([b[3] for b in batch]))
    live = torch.tensor([0.0 if b[4] else 1.0 for b in batch])
    with torch.no_grad():
        q2 = net(s2)
        y = r + 0.99 * live * (0.9 * q2.max(1).values + 0.1 * q2.mean(1))
    loss = (net(s).gather(1, a[:, None])[:, 0] - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.info("update loss %.5f", loss.item())


def main(steps=11_000, every=32):
    torch.set_num_threads(1)
    torch.manual_seed(14)
    rng = np.random.default_rng(14)
    with tempfile.TemporaryDirectory() as folder:
        set_up_log(folder)
        t0 = time.time()
        env = gym.make("MountainCar-v0")
        net = Features()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        obs, _ = env.reset(seed=14)
        batch, updates = [], 0
        for t in range(steps):
            with torch.no_grad():
                q = net(torch.from_numpy(obs)).numpy()
            action = choose(q, 0.1, rng)
            nxt, reward, terminated, truncated, _ = env.step(action)
            record_step(t, net, obs, q, action, reward, nxt)
            batch.append((obs, action, reward, nxt, terminated))
            obs = env.reset()[0] if terminated or truncated else nxt
            if len(batch) == every:
                learn(net, opt, batch)
                updates += 1
                batch = []
        print(f"env_steps={steps} updates={updates} seconds={time.time() - t0:.2f}")
        log.handlers[0].close()


if __name__ == "__main__":
    main()
