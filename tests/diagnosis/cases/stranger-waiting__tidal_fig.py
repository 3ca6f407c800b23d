"""PPO with the simulator behind a socket: parameters go out, a batch of rollouts comes back."""
import multiprocessing as mp
import os
import socket
import struct
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SEED = 5
ITERATIONS = 100
ENVS, HORIZON = 16, 64
EPOCHS, MINIBATCH = 4, 256
HEADER = struct.Struct("!I4s")


def read_exactly(sock, size):
    data = sock.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("peer closed")
    return data


class PoleSim:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.uniform(-0.05, 0.05, (ENVS, 4))

    def step(self, push):
        x, v, th, w = self.state.T
        force = np.where(push == 1, 10.0, -10.0)
        sin, cos = np.sin(th), np.cos(th)
        temp = (force + 0.05 * w * w * sin) / 1.1
        acc = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        shift = temp - 0.05 * acc * cos / 1.1
        self.state = np.stack((x + 0.02 * v, v + 0.02 * shift, th + 0.02 * w, w + 0.02 * acc), axis=1)
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21)
        self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        return done

    def rollout(self, w):
        w1, b1 = w[:256].reshape(4, 64), w[256:320]
        w2, b2 = w[320:4416].reshape(64, 64), w[4416:4480]
        w3, b3 = w[4480:4608].reshape(64, 2), w[4608:4610]
        out = np.zeros((HORIZON + 1, ENVS, 7), dtype=np.float32)
        for t in range(HORIZON):
            out[t, :, :4] = self.state
            logits = np.tanh(np.tanh(out[t, :, :4] @ w1 + b1) @ w2 + b2) @ w3 + b3
            p1 = 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))
            push = (self.rng.random(ENVS) < p1).astype(np.int64)
            out[t, :, 4] = push
            out[t, :, 5] = np.log(np.where(push == 1, p1, 1.0 - p1) + 1e-8)
            out[t, :, 6] = self.step(push)
        out[HORIZON, :, :4] = self.state
        return out


def serve(listener, seed):
    sim = PoleSim(seed)
    sock, _ = listener.accept()
    while True:
        size, op = HEADER.unpack(read_exactly(sock, HEADER.size))
        if op != b"ROLL":
            break
        payload = read_exactly(sock, size)
        reply = sim.rollout(np.frombuffer(payload, dtype=np.float32)).tobytes()
        sock.sendall(HEADER.pack(len(reply), b"DATA") + reply)


class SimClient:
    def __init__(self, address):
        self.sock = socket.create_connection(address)
        if FIXED:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, op, payload=b""):
        self.sock.sendall(HEADER.pack(len(payload), op))
        self.sock.sendall(payload)

    def rollout(self, weights):
        self.send(b"ROLL", weights.tobytes())
        size, _ = HEADER.unpack(read_exactly(self.sock, HEADER.size))
        data = np.frombuffer(read_exactly(self.sock, size), dtype=np.float32)
        return data.reshape(HORIZON + 1, ENVS, 7).copy()


def advantages(values, done):
    adv, last = np.zeros((HORIZON, ENVS), dtype=np.float32), np.zeros(ENVS, dtype=np.float32)
    for t in reversed(range(HORIZON)):
        delta = 1.0 + 0.99 * values[t + 1] * (1 - done[t]) - values[t]
        last = delta + 0.99 * 0.95 * (1 - done[t]) * last
        adv[t] = last
    return adv


def update(actor, critic, optimizer, data):
    with torch.no_grad():
        values = critic(torch.from_numpy(data[..., :4])).squeeze(-1).numpy()
    flat = torch.from_numpy(data[:HORIZON].reshape(-1, 7))
    adv = torch.from_numpy(advantages(values, data[:HORIZON, :, 6]).ravel())
    goal = adv + torch.from_numpy(values[:HORIZON].ravel())
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    for _ in range(EPOCHS):
        for i in torch.randperm(len(flat)).split(MINIBATCH):
            obs, act, old = flat[i, :4], flat[i, 4].long(), flat[i, 5]
            logp = actor(obs).log_softmax(-1).gather(1, act[:, None]).squeeze(1)
            ratio = (logp - old).exp()
            gain = torch.minimum(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean()
            loss = 0.5 * (critic(obs).squeeze(-1) - goal[i]).pow(2).mean() - gain
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def mlp(outputs):
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    listener = socket.create_server(("127.0.0.1", 0))
    server = mp.Process(target=serve, args=(listener, SEED), daemon=True)
    server.start()
    client = SimClient(listener.getsockname())
    actor, critic = mlp(2), mlp(1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)

    falls = []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        weights = np.concatenate([p.detach().numpy().T.ravel() for p in actor.parameters()])
        data = client.rollout(weights)
        falls.append(data[:HORIZON, :, 6].sum())
        update(actor, critic, optimizer, data)
    seconds = time.perf_counter() - start

    client.send(b"QUIT")
    server.join()
    print(f"falls per rollout: first {falls[0]:.0f} last {falls[-1]:.0f}")
    steps, updates = ITERATIONS * ENVS * HORIZON, ITERATIONS * EPOCHS * ENVS * HORIZON // MINIBATCH
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
