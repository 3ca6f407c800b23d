"""Actor-critic learner with two rollout processes that keep their own copy of the policy."""
import json
import multiprocessing as mp
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"


class Settings:
    crew, chunk, chunks_per_update = 2, 16, 8
    updates, epochs, hidden = 50, 10, 64


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.a, self.b = nn.Linear(4, hidden), nn.Linear(hidden, hidden)
        self.pi, self.v = nn.Linear(hidden, 2), nn.Linear(hidden, 1)

    def forward(self, x):
        h = torch.tanh(self.b(torch.tanh(self.a(x))))
        return self.pi(h), self.v(h).squeeze(-1)


def rower(conn, seed):
    """Plays a chunk of steps with the current policy whenever it is told to."""
    env = gym.make("CartPole-v1")
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    version, w = -1, None
    while (order := conn.recv()) is not None:
        if order["version"] != version:
            version = order["version"]
            w = {k: np.asarray(v, dtype=np.float32) for k, v in json.loads(order["policy"]).items()}
        n = order["steps"]
        seen, acts, rews, ends = np.zeros((n, 4), np.float32), np.zeros(n, np.int64), *np.zeros((2, n), np.float32)
        for t in range(n):
            h = np.tanh(w["b.weight"] @ np.tanh(w["a.weight"] @ obs + w["a.bias"]) + w["b.bias"])
            z = w["pi.weight"] @ h + w["pi.bias"]
            act = int(rng.random() < 1 / (1 + np.exp(z[0] - z[1])))
            seen[t], acts[t] = obs, act
            obs, rews[t], term, trunc, _ = env.step(act)
            if term or trunc:
                ends[t], (obs, _) = 1.0, env.reset()
        conn.send((seen, acts, rews, ends))


class Coxswain:
    def __init__(self, cfg):
        self.cfg, self.latest = cfg, (-1, None)
        self.conns, self.procs = [], []
        for i in range(cfg.crew):
            here, there = mp.Pipe()
            proc = mp.Process(target=rower, args=(there, 100 + i), daemon=True)
            proc.start()
            self.conns.append(here), self.procs.append(proc)

    def order(self, net, version):
        for conn in self.conns:
            policy = self.latest[1]
            if self.latest[0] != version or not FIXED:
                policy = json.dumps({k: v.tolist() for k, v in net.state_dict().items()})
                self.latest = (version, policy)
            conn.send({"version": version, "steps": self.cfg.chunk, "policy": policy})

    def gather(self, net, version):
        parts = [[] for _ in self.conns]
        for _ in range(self.cfg.chunks_per_update):
            self.order(net, version)
            for part, conn in zip(parts, self.conns):
                part.append(conn.recv())
        return [tuple(np.concatenate(x) for x in zip(*part)) for part in parts]

    def dismiss(self):
        for conn, proc in zip(self.conns, self.procs):
            conn.send(None)
            proc.join()


def learn(net, opt, tracks, epochs):
    obs, acts, rets = [], [], []
    for seen, act, rew, end in tracks:
        ret, run = np.zeros_like(rew), 0.0
        for t in reversed(range(len(rew))):
            run = rew[t] + 0.98 * run * (1 - end[t])
            ret[t] = run
        obs.append(seen), acts.append(act), rets.append(ret)
    obs, acts, rets = (torch.from_numpy(np.concatenate(x)) for x in (obs, acts, rets))
    for _ in range(epochs):
        logits, value = net(obs)
        logp = torch.distributions.Categorical(logits=logits).log_prob(acts)
        loss = -(logp * (rets - value).detach()).mean() + 0.5 * (rets - value).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    torch.manual_seed(2)
    cfg = Settings()
    net, cox = Net(cfg.hidden), Coxswain(cfg)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    start = time.perf_counter()
    for update in range(cfg.updates):
        learn(net, opt, cox.gather(net, update), cfg.epochs)
    seconds = time.perf_counter() - start
    cox.dismiss()
    print(f"env_steps={cfg.updates * cfg.chunks_per_update * cfg.chunk * cfg.crew} updates={cfg.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
