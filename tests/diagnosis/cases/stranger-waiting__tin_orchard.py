"""Advantage actor-critic on four slide rigs, each driven from a process of its own."""
import multiprocessing as mp
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"

SEED, GAMMA = 11, 0.97
N_RIGS, ROLLOUT, UPDATES = 4, 10, 40

class SlideRig(gym.Env):
    """A carriage on a rail that has to be brought to the mark and held there."""

    SETTLE = 0.002  # the drive needs this long before the encoder can be read

    def __init__(self, seed):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self.rng = np.random.default_rng(seed)

    def _observe(self):
        return np.array([self.x, self.v, self.mark], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        self.x, self.v = float(self.rng.uniform(-1, 1)), 0.0
        self.mark = float(self.rng.uniform(-0.8, 0.8))
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        force = (action - 1) * 1.5
        for _ in range(5):
            self.v += (force - 0.6 * self.v) * 0.02
            self.x = min(max(self.x + self.v * 0.02, -1.5), 1.5)
        time.sleep(self.SETTLE)
        self.t += 1
        gap = abs(self.x - self.mark)
        reward = -gap + (0.5 if gap < 0.1 else 0.0)
        return self._observe(), reward, False, self.t >= 50, {}

def rig_process(pipe, seed):
    rig = SlideRig(seed)
    obs, _ = rig.reset()
    pipe.send(obs)
    while True:
        action = pipe.recv()
        if action is None:
            break
        obs, reward, terminated, truncated, _ = rig.step(action)
        if terminated or truncated:
            obs, _ = rig.reset()
        pipe.send((obs, reward, terminated or truncated))
    pipe.close()

class RigBench:
    def __init__(self, n, seed):
        ctx = mp.get_context("fork")
        self.pipes, self.procs = [], []
        for i in range(n):
            ours, theirs = ctx.Pipe()
            proc = ctx.Process(target=rig_process, args=(theirs, seed + i), daemon=True)
            proc.start()
            self.pipes, self.procs = self.pipes + [ours], self.procs + [proc]

    def first(self):
        return np.stack([pipe.recv() for pipe in self.pipes])

    def step(self, actions):
        if FIXED:
            for pipe, action in zip(self.pipes, actions):
                pipe.send(int(action))
            replies = [pipe.recv() for pipe in self.pipes]
        else:
            replies = []
            for pipe, action in zip(self.pipes, actions):
                pipe.send(int(action))
                replies.append(pipe.recv())
        obs, reward, done = zip(*replies)
        return np.stack(obs), np.array(reward, np.float32), np.array(done, np.float32)

    def close(self):
        for pipe in self.pipes:
            pipe.send(None)
        for proc in self.procs:
            proc.join(timeout=5)
            if proc.is_alive():
                proc.terminate()

class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, obs):
        z = self.body(obs)
        return self.pi(z), self.v(z).squeeze(-1)

def main():
    torch.manual_seed(SEED)
    bench = RigBench(N_RIGS, SEED)
    try:
        net = ActorCritic()
        optim = torch.optim.Adam(net.parameters(), lr=2e-3)
        obs = torch.from_numpy(bench.first())
        start = time.perf_counter()
        for update in range(UPDATES):
            seen, acts, rewards, dones = [], [], [], []
            for _ in range(ROLLOUT):
                with torch.no_grad():
                    logits, _ = net(obs)
                action = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
                nxt, reward, done = bench.step(action.numpy())
                for part, value in zip((seen, acts, rewards, dones), (obs, action, reward, done)):
                    part.append(torch.as_tensor(value))
                obs = torch.from_numpy(nxt)
            with torch.no_grad():
                ret = net(obs)[1]
            targets = []
            for reward, done in zip(reversed(rewards), reversed(dones)):
                ret = reward + GAMMA * (1 - done) * ret
                targets.append(ret)
            targets = torch.stack(targets[::-1])
            logits, values = net(torch.stack(seen))
            logp = logits.log_softmax(-1)
            adv = targets - values
            picked = logp.gather(-1, torch.stack(acts).unsqueeze(-1)).squeeze(-1)
            entropy = -(logp.exp() * logp).sum(-1).mean()
            loss = -(picked * adv.detach()).mean() + 0.5 * adv.pow(2).mean() - 0.01 * entropy
            optim.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optim.step()
        seconds = time.perf_counter() - start
    finally:
        bench.close()
    print(f"env_steps={UPDATES * ROLLOUT * N_RIGS} updates={UPDATES} seconds={seconds:.3f}")

if __name__ == "__main__":
    main()
