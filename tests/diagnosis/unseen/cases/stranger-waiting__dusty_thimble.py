"""Actor-learner A2C: an actor process simulates a batch of lunar-style landers and ships rollouts over a local socket."""
import multiprocessing as mp
import os
import socket
import struct
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

N, T, ITERS = 64, 32, 44
OBS, ACT, HID = 5, 3, 64
GAMMA = 0.97


class LanderVec:
    """Height, speed, tilt, spin, fuel; actions: nothing, main engine, counter-tilt."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.s = np.zeros((n, OBS), np.float32)
        self.spawn(np.ones(n, bool))

    def spawn(self, mask):
        k = int(mask.sum())
        self.s[mask] = np.stack([self.rng.uniform(0.5, 1, k), np.zeros(k), self.rng.normal(0, 0.2, k),
                                 self.rng.normal(0, 0.05, k), np.ones(k)], 1)

    def step(self, a):
        s = self.s
        burn = (a == 1) & (s[:, 4] > 0)
        s[:, 1] += -0.02 + 0.05 * burn * np.cos(s[:, 2])
        s[:, 0] += 0.2 * s[:, 1]
        s[:, 3] += -0.1 * s[:, 2] * (a == 2) + self.rng.normal(0, 0.01, self.n)
        s[:, 2] += s[:, 3]
        s[:, 4] -= 0.02 * burn
        landed, lost = s[:, 0] <= 0, (s[:, 0] > 2) | (np.abs(s[:, 2]) > 1.5)
        rew = np.where(landed, 1 - 8 * np.abs(s[:, 1]) - np.abs(s[:, 2]), 0) - 1.0 * lost - 0.01
        done = landed | lost
        if done.any():
            self.spawn(done)
        return s.copy(), rew.astype(np.float32), done


class Channel:
    def __init__(self, sock):
        self.sock = sock
        if FIXED:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, array):
        body = np.ascontiguousarray(array, np.float32).tobytes()
        self.sock.sendall(struct.pack("!I", len(body)))
        self.sock.sendall(body)

    def _read(self, n):
        chunks = bytearray()
        while len(chunks) < n:
            part = self.sock.recv(n - len(chunks))
            if not part:
                raise EOFError
            chunks += part
        return chunks

    def recv(self):
        size, = struct.unpack("!I", self._read(4))
        return np.frombuffer(self._read(size), np.float32)


def actor(port):
    rng = np.random.default_rng(8)
    env = LanderVec(N, rng)
    chan = Channel(socket.create_connection(("127.0.0.1", port)))
    obs = env.s.copy()
    for _ in range(ITERS):
        flat = chan.recv()
        w1, b1, w2, b2 = np.split(flat, np.cumsum([HID * OBS, HID, ACT * HID]))
        w1, w2 = w1.reshape(HID, OBS), w2.reshape(ACT, HID)
        out = np.zeros((T, N, OBS + 3), np.float32)
        for t in range(T):
            logits = np.tanh(obs @ w1.T + b1) @ w2.T + b2
            a = (logits + rng.gumbel(size=logits.shape)).argmax(1)
            out[t, :, :OBS], out[t, :, OBS] = obs, a
            obs, out[t, :, OBS + 1], out[t, :, OBS + 2] = env.step(a)
        chan.send(out)


def learn(pi, vf, opt, roll):
    obs, act, rew, done = roll[..., :OBS], roll[..., OBS].long(), roll[..., OBS + 1], roll[..., OBS + 2]
    ret, g = torch.zeros(T, N), vf(obs[-1]).detach().squeeze(-1)
    for t in reversed(range(T)):
        g = rew[t] + GAMMA * (1 - done[t]) * g
        ret[t] = g
    for _ in range(4):
        value = vf(obs).squeeze(-1)
        logp = torch.log_softmax(pi(obs), -1)
        adv = (ret - value).detach()
        chosen = logp.gather(-1, act[..., None]).squeeze(-1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = -(chosen * adv).mean() + 0.5 * (value - ret).square().mean() - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        opt.step()
    return rew.mean().item()


def main():
    torch.manual_seed(8)
    pi = nn.Sequential(nn.Linear(OBS, HID), nn.Tanh(), nn.Linear(HID, ACT))
    vf = nn.Sequential(nn.Linear(OBS, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
    opt = torch.optim.Adam([*pi.parameters(), *vf.parameters()], lr=2e-3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        worker = mp.get_context("fork").Process(target=actor, args=(server.getsockname()[1],), daemon=True)
        worker.start()
        chan = Channel(server.accept()[0])
    start = time.perf_counter()
    for it in range(ITERS):
        chan.send(torch.cat([p.detach().reshape(-1) for p in pi.parameters()]).numpy())
        roll = torch.from_numpy(chan.recv()).view(T, N, OBS + 3)
        score = learn(pi, vf, opt, roll)
        if it % 10 == 0:
            print(f"iter {it} reward/step {score:.3f}")
    seconds = time.perf_counter() - start
    worker.join()
    print(f"env_steps={ITERS * T * N} updates={ITERS * 4} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
