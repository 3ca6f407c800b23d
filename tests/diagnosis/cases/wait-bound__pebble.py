"""Actor-critic on a chain of rolling stones; a side process mirrors the newest weights."""
import fcntl
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
UPLOAD_S, PAUSE_S = 0.012, 0.003


def mirror(folder, stop):
    """Copies the weights file to the (remote) archive for the dashboards."""
    path = os.path.join(folder, "weights.bin")
    while not stop.is_set():
        if os.path.exists(path):
            with open(path, "rb") as fh:
                fcntl.flock(fh, fcntl.LOCK_SH)
                fh.read()
                time.sleep(UPLOAD_S)
                fcntl.flock(fh, fcntl.LOCK_UN)
        time.sleep(PAUSE_S)


class Stones:
    """A batch of stones on a slope, pushed left or right, to be kept near the middle."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.x, self.v = self.rng.uniform(-0.5, 0.5, n), np.zeros(n)

    def observe(self):
        return np.stack([self.x, self.v, np.sin(3 * self.x), np.cos(3 * self.x)], 1).astype(np.float32)

    def step(self, act):
        push = (act - 1) * 0.3
        self.v = 0.98 * self.v + 0.05 * (push + 0.8 * np.sin(3 * self.x))
        self.x = self.x + 0.1 * self.v
        out = np.abs(self.x) > 1.5
        reward = 1.0 - np.abs(self.x) - 2.0 * out
        self.x = np.where(out, self.rng.uniform(-0.5, 0.5, self.n), self.x)
        self.v = np.where(out, 0.0, self.v)
        return self.observe(), reward.astype(np.float32), out.astype(np.float32)


class Publisher:
    def __init__(self, folder):
        self.path = os.path.join(folder, "weights.bin")

    def publish(self, net):
        flat = nn.utils.parameters_to_vector(net.parameters()).detach().numpy().tobytes()
        if FIXED:
            with open(self.path + ".new", "wb") as fh:
                fh.write(flat)
            os.replace(self.path + ".new", self.path)
            return
        with open(self.path, "ab") as fh:
            fcntl.flock(fh, fcntl.LOCK_EX)
            fh.truncate(0)
            fh.write(flat)
            fh.flush()
            fcntl.flock(fh, fcntl.LOCK_UN)


class Agent:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    @torch.no_grad()
    def act(self, obs):
        logits = self.net(torch.from_numpy(obs))[:, :3]
        return torch.multinomial(logits.softmax(-1), 1)[:, 0].numpy()

    def learn(self, obs, act, rew, end, last):
        with torch.no_grad():
            ret = self.net(torch.from_numpy(last))[:, 3].numpy()
        returns = np.empty_like(rew)
        for t in reversed(range(len(rew))):
            ret = rew[t] + 0.98 * (1 - end[t]) * ret
            returns[t] = ret
        out = self.net(torch.from_numpy(obs))
        logp = out[..., :3].log_softmax(-1)
        delta = torch.from_numpy(returns) - out[..., 3]
        chosen = logp.gather(-1, torch.from_numpy(act)[..., None])[..., 0]
        loss = -(chosen * delta.detach()).mean() + 0.5 * delta.pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


def main(n=64, horizon=32, iterations=360):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    folder = tempfile.mkdtemp()
    ctx = mp.get_context("fork")
    stop = ctx.Event()
    side = ctx.Process(target=mirror, args=(folder, stop), daemon=True)
    side.start()
    env, agent, publisher = Stones(n, 2), Agent(), Publisher(folder)
    obs = env.observe()
    publisher.publish(agent.net)
    updates = 0
    start = time.perf_counter()
    for _ in range(iterations):
        rows = []
        for _ in range(horizon):
            act = agent.act(obs)
            nxt, rew, end = env.step(act)
            rows.append((obs, act, rew, end))
            obs = nxt
        agent.learn(*(np.stack(c) for c in zip(*rows)), obs)
        publisher.publish(agent.net)
        updates += 1
    seconds = time.perf_counter() - start
    stop.set()
    side.join()
    print(f"env_steps={updates * horizon * n} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
