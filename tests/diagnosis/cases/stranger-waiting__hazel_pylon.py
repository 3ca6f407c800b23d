"""Communicating agents in small grid worlds: one thread per world, one inference thread for all."""
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SIDE, TEAM, HORIZON, OBS, ACTIONS = 8, 3, 25, 6, 5
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
ACTORS, STEPS, ITERATIONS = 6, 32, 46
INFERENCE_BATCH = ACTORS if FIXED else 8
INFERENCE_WAIT, GAMMA = 0.003, 0.97


class TreasureTeam:  # only one member of the team sees where the treasure is
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.pos, self.treasure = self.rng.integers(SIDE, size=(TEAM, 2)), self.rng.integers(SIDE, size=2)
        self.scout, self.t = int(self.rng.integers(TEAM)), 0
        return self.observe()

    def observe(self):
        obs = np.zeros((TEAM, OBS), np.float32)
        obs[:, :2] = self.pos / SIDE
        obs[self.scout, 2:5] = *(self.treasure / SIDE), 1.0
        obs[:, 5] = self.t / HORIZON
        return obs

    def step(self, actions):
        self.pos = np.clip(self.pos + MOVES[actions], 0, SIDE - 1)
        gap = np.abs(self.pos - self.treasure).sum(1)
        self.t += 1
        done = self.t >= HORIZON or gap.max() == 0
        reward = -float(gap.mean()) / SIDE + float((gap == 0).mean())
        return (self.reset() if done else self.observe()), reward, done


class CommNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.encode, self.talk = nn.Linear(OBS, hidden), nn.Linear(2 * hidden, hidden)
        self.actor, self.critic = nn.Linear(hidden, ACTIONS), nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.encode(obs).tanh()
        heard = (h.sum(1, keepdim=True) - h) / (TEAM - 1)
        z = self.talk(torch.cat([h, heard], -1)).tanh()
        return self.actor(z), self.critic(z.mean(1)).squeeze(-1)


class InferenceServer(threading.Thread):
    def __init__(self, net, max_batch, max_wait):
        super().__init__(daemon=True)
        self.net, self.max_batch, self.max_wait = net, max_batch, max_wait
        self.requests = queue.Queue()

    def gather(self):
        batch = [self.requests.get()]
        deadline = time.monotonic() + self.max_wait
        while len(batch) < self.max_batch and batch[0] is not None:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                batch.append(self.requests.get(timeout=left))
            except queue.Empty:
                break
        return batch

    @torch.no_grad()
    def run(self):
        while True:
            batch = self.gather()
            if batch[0] is None:
                return
            logits, value = self.net(torch.from_numpy(np.stack([obs for obs, _ in batch])))
            for (_, mailbox), row, v in zip(batch, logits.numpy(), value.tolist()):
                mailbox.put((row, v))


class Actor:
    def __init__(self, seed, server):
        self.env, self.server = TreasureTeam(seed), server
        self.rng = np.random.default_rng(1000 + seed)
        self.mailbox = queue.SimpleQueue()
        self.obs = self.env.observe()

    def ask(self):
        self.server.requests.put((self.obs, self.mailbox))
        return self.mailbox.get()

    def collect(self):
        rows = []
        for _ in range(STEPS):
            logits, value = self.ask()
            action = (logits + self.rng.gumbel(size=logits.shape)).argmax(-1)
            nxt, reward, done = self.env.step(action)
            rows.append((self.obs, action, reward, done, value))
            self.obs = nxt
        obs, action, reward, done, value = zip(*rows)
        ret, run = np.zeros(STEPS, np.float32), value[-1]
        for t in reversed(range(STEPS)):
            run = reward[t] + GAMMA * (0.0 if done[t] else run)
            ret[t] = run
        return np.stack(obs), np.stack(action), ret


def update(net, opt, obs, action, ret):
    for part in torch.randperm(len(obs)).chunk(4):
        logits, value = net(obs[part])
        logp = logits.log_softmax(-1)
        adv = ret[part] - value.detach()
        chosen = logp.gather(-1, action[part][..., None]).squeeze(-1).sum(1)
        loss = -(adv * chosen).mean() + 0.5 * (value - ret[part]).square().mean()
        loss = loss + 0.01 * (logp.exp() * logp).sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return 4


def main():
    torch.set_num_threads(1)
    torch.manual_seed(9)
    net = CommNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    server = InferenceServer(net, INFERENCE_BATCH, INFERENCE_WAIT)
    server.start()
    actors, updates = [Actor(i, server) for i in range(ACTORS)], 0
    with ThreadPoolExecutor(ACTORS) as pool:
        start = time.perf_counter()
        for _ in range(ITERATIONS):
            data = zip(*pool.map(Actor.collect, actors))
            updates += update(net, opt, *[torch.from_numpy(np.concatenate(x)) for x in data])
        seconds = time.perf_counter() - start
    server.requests.put(None)
    server.join()
    print(f"env_steps={ITERATIONS * STEPS * ACTORS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
