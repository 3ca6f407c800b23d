"""Catch from pixels with PPO: two host processes serve batches of games over local sockets, one learner plays them all."""
import multiprocessing as mp
import os
import socket
import struct
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SIDE, GAMES, HOSTS, ROLLOUT, ITERATIONS, EPOCHS, GAMMA = 28, 24, 2, 6, 7, 14, 0.97
SIZE = struct.Struct(">I")
ROW = np.dtype([("frame", np.uint8, (1, SIDE, SIDE)), ("reward", np.float32), ("done", np.bool_)])


class CatchBatch:
    def __init__(self, count, seed):
        self.rng, self.count = np.random.default_rng(seed), count
        self.ball, self.paddle = np.zeros((count, 2), dtype=np.int64), np.full(count, SIDE // 2)
        self.fresh(np.ones(count, dtype=bool))

    def fresh(self, mask):
        n = int(mask.sum())
        self.ball[mask] = np.stack([self.rng.integers(0, SIDE // 2, n), self.rng.integers(2, SIDE - 2, n)], 1)

    def step(self, actions):
        self.paddle = np.clip(self.paddle + 2 * (actions.astype(np.int64) - 1), 1, SIDE - 2)
        self.ball[:, 0] += 2
        out, rows = np.zeros(self.count, dtype=ROW), np.arange(self.count)
        out["done"] = self.ball[:, 0] >= SIDE - 1
        hit = np.abs(self.ball[:, 1] - self.paddle) <= 2
        out["reward"] = np.where(out["done"], np.where(hit, 1.0, -1.0), 0.0)
        self.fresh(out["done"])
        out["frame"][rows, 0, self.ball[:, 0], self.ball[:, 1]] = 255
        for off in (-1, 0, 1):
            out["frame"][rows, 0, SIDE - 1, self.paddle + off] = 128
        return out


def read_exact(sock, size):
    data = sock.recv(size)
    while len(data) < size:
        data += sock.recv(size - len(data))
    return data


def read_message(sock):
    return read_exact(sock, SIZE.unpack(read_exact(sock, SIZE.size))[0])


def send_message(sock, body):
    if FIXED:
        sock.sendall(SIZE.pack(len(body)) + body)
    else:
        sock.sendall(SIZE.pack(len(body)))
        sock.sendall(body)


def host(address, seed):
    games = CatchBatch(GAMES, seed)
    with socket.create_connection(address) as sock:
        while True:
            send_message(sock, games.step(np.frombuffer(read_message(sock), dtype=np.int8)).tobytes())


class Fleet:
    def __init__(self):
        server, ctx = socket.create_server(("127.0.0.1", 0)), mp.get_context("fork")
        self.procs = [ctx.Process(target=host, args=(server.getsockname(), 10 + i), daemon=True) for i in range(HOSTS)]
        for p in self.procs:
            p.start()
        self.socks = [server.accept()[0] for _ in range(HOSTS)]

    def step(self, actions):
        for sock, part in zip(self.socks, actions.to(torch.int8).numpy().reshape(HOSTS, GAMES)):
            send_message(sock, part.tobytes())
        rows = np.frombuffer(b"".join(read_message(sock) for sock in self.socks), dtype=ROW)
        return tuple(torch.from_numpy(rows[name].astype(np.float32)) for name in ("frame", "reward", "done"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(),
                                   nn.Linear(32 * 36, 128), nn.ReLU())
        self.pi, self.v = nn.Linear(128, 3), nn.Linear(128, 1)

    def forward(self, x):
        h = self.trunk(x / 255.0)
        return torch.log_softmax(self.pi(h), -1), self.v(h).squeeze(-1)


def improve(net, opt, obs, act, old, adv, ret):
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    for _ in range(EPOCHS):
        logp, v = net(obs)
        ratio = (logp.gather(1, act[:, None]).squeeze(1) - old).exp()
        gain = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        loss = -gain + 0.5 * F.mse_loss(v, ret) + 0.01 * (logp.exp() * logp).sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    fleet, net = Fleet(), Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = time.perf_counter()
    obs = fleet.step(torch.ones(HOSTS * GAMES))[0]
    for _ in range(ITERATIONS):
        rows = []
        for _ in range(ROLLOUT):
            with torch.no_grad():
                logp, v = net(obs)
            a = torch.multinomial(logp.exp(), 1)
            nxt, r, d = fleet.step(a)
            rows.append((obs, a[:, 0], logp.gather(1, a)[:, 0], v, r, d))
            obs = nxt
        with torch.no_grad():
            run = net(obs)[1]
        returns = []
        for *_, r, d in reversed(rows):
            run = r + GAMMA * (1 - d) * run
            returns.insert(0, run)
        seen, acts, logps, vals, rews, _ = (torch.cat(column) for column in zip(*rows))
        ret = torch.cat(returns)
        improve(net, opt, seen, acts, logps, ret - vals, ret)
    seconds = time.perf_counter() - start
    print(f"mean reward of the last rollout {rews.mean().item():.3f}")
    print(f"env_steps={ITERATIONS * ROLLOUT * HOSTS * GAMES} updates={ITERATIONS * EPOCHS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
