"""PPO against a warehouse simulator that runs in its own process and is reached over a local socket."""
import multiprocessing as mp
import os
import socket
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

ROBOTS, OBS, ACT, GAMMA, STD = 256, 9, 2, 0.98, 0.5
STEPS, ITERATIONS, EPOCHS, MINIBATCH = 12, 5, 10, 256


class Warehouse:
    """Carts that bring crates to their bays; the reward is shaped with the distance to the bay."""
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.pos, self.vel, self.bay = (np.zeros((ROBOTS, 2)) for _ in range(3))
        self.clock = np.zeros(ROBOTS)
        self.spawn(np.ones(ROBOTS, bool))

    def spawn(self, mask):
        n = int(mask.sum())
        self.pos[mask], self.bay[mask] = self.rng.uniform(-1.0, 1.0, (2, n, 2))
        self.vel[mask], self.clock[mask] = 0.0, self.rng.integers(0, 20, n)

    def observe(self, reward, done):
        gap = self.bay - self.pos
        dist = np.linalg.norm(gap, axis=1)
        return np.column_stack((self.pos, self.vel, gap, np.sign(gap), dist, reward, done)).astype(np.float32)

    def step(self, action):
        before = np.linalg.norm(self.bay - self.pos, axis=1)
        self.vel = 0.85 * self.vel + 0.15 * np.clip(action, -1.0, 1.0)
        self.pos = np.clip(self.pos + 0.1 * self.vel, -1.0, 1.0)
        after, self.clock = np.linalg.norm(self.bay - self.pos, axis=1), self.clock + 1
        self.spawn(done := (after < 0.08) | (self.clock >= 60))
        return self.observe(5.0 * (before - GAMMA * after) + 2.0 * (after < 0.08), done)


def configure(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if FIXED:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock, sock.makefile("rb")


def send_array(sock, array):
    sock.sendall(struct.pack("<I", array.nbytes))
    sock.sendall(array.tobytes())


def recv_array(reader, columns):
    header = reader.read(4)
    if len(header) < 4:
        raise ConnectionError("peer closed the connection")
    return np.frombuffer(reader.read(*struct.unpack("<I", header)), np.float32).reshape(-1, columns)


def serve(listener, seed):
    sock, reader = configure(listener.accept()[0])
    world = Warehouse(seed)
    send_array(sock, world.observe(np.zeros(ROBOTS), np.zeros(ROBOTS)))
    try:
        while True:
            send_array(sock, world.step(recv_array(reader, ACT)))
    except ConnectionError:
        sock.close()


class RemoteEnv:
    def __init__(self, address):
        self.sock, self.reader = configure(socket.create_connection(address))
        self.first = torch.tensor(recv_array(self.reader, OBS + 2)[:, :OBS])

    def step(self, action):
        send_array(self.sock, action)
        reply = torch.tensor(recv_array(self.reader, OBS + 2))
        return reply[:, :OBS], reply[:, OBS], reply[:, OBS + 1]


def mlp(out, width=192):
    return nn.Sequential(nn.Linear(OBS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, out))


def log_prob(mean, action):
    return -((action - mean) / STD).pow(2).sum(-1) / 2


@torch.no_grad()
def collect(env, pi, value, obs):
    rows = []
    for _ in range(STEPS):
        mean = pi(obs)
        action = mean + STD * torch.randn_like(mean)
        following, reward, done = env.step(action.numpy())
        rows.append((obs, action, log_prob(mean, action), reward, 1.0 - done))
        obs = following
    seen, acts, logp, rewards, alive = (torch.stack(column) for column in zip(*rows))
    targets = [value(obs).squeeze(-1)]
    for reward, going in zip(rewards.flip(0), alive.flip(0)):
        targets.insert(0, reward + GAMMA * going * targets[0])
    targets = torch.stack(targets[:-1])
    adv = F.layer_norm(targets - value(seen).squeeze(-1), targets.shape)
    return obs, [x.flatten(0, 1) for x in (seen, acts, logp, adv, targets)], rewards.mean().item()


def optimise(pi, value, optim, batch, updates):
    order = torch.cat([torch.randperm(len(batch[0])) for _ in range(EPOCHS)])
    for index in order.split(MINIBATCH):
        obs, act, logp, adv, target = (x[index] for x in batch)
        ratio = (log_prob(pi(obs), act) - logp).exp()
        gain = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        loss = 0.5 * (value(obs).squeeze(-1) - target).pow(2).mean() - gain
        optim.zero_grad()
        loss.backward()
        optim.step()
    return updates + len(order) // MINIBATCH


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    listener = socket.create_server(("127.0.0.1", 0))
    server = mp.get_context("fork").Process(target=serve, args=(listener, 3), daemon=True)
    server.start()
    env = RemoteEnv(listener.getsockname())
    pi, value = mlp(ACT), mlp(1)
    optim = torch.optim.Adam([*pi.parameters(), *value.parameters()], lr=3e-4)
    obs, env_steps, updates = env.first, 0, 0
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        obs, batch, reward = collect(env, pi, value, obs)
        env_steps += STEPS * ROBOTS
        updates = optimise(pi, value, optim, batch, updates)
    seconds = time.perf_counter() - start
    env.reader.close()
    env.sock.close()
    server.join(timeout=5)
    print(f"mean_reward={reward:.4f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
