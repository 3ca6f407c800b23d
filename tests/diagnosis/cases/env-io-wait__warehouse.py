"""A2C against a fleet of warehouse simulators that run as a service on local sockets."""

import multiprocessing as mp
import os
import socket
import struct
import threading
import time

import numpy as np
import torch
from torch import nn

FIXED = bool(int(os.environ.get("FIXED", "0")))
OBS, ACTIONS, TICK = 8, 4, 0.002
FRAME = struct.Struct(f"<{OBS}ff?")


def serve_client(conn, seed):
    """The simulator's side: one connection is one warehouse; a tick takes its time."""
    rng = np.random.default_rng(seed)
    state, age = rng.normal(size=OBS), 0
    effect = np.random.default_rng(0).normal(0, 0.3, (ACTIONS, OBS))
    while True:
        data = conn.recv(1)
        if not data:
            return
        time.sleep(TICK)
        state = 0.95 * state + effect[data[0] % ACTIONS] + rng.normal(0, 0.05, OBS)
        age += 1
        done = age >= 100
        if done:
            state, age = rng.normal(size=OBS), 0
        conn.sendall(FRAME.pack(*state.astype(np.float32), -float(np.square(state).mean()), done))


def serve(ports, count):
    listener = socket.create_server(("127.0.0.1", 0))
    ports.put(listener.getsockname()[1])
    for seed in range(count):
        conn, _ = listener.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve_client, args=(conn, seed), daemon=True).start()
    time.sleep(3600)


class WarehouseClient:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def reset(self):
        return self.step(0)[0]

    def post(self, action):
        self.sock.sendall(bytes([int(action)]))

    def fetch(self):
        data = b""
        while len(data) < FRAME.size:
            data += self.sock.recv(FRAME.size - len(data))
        *obs, reward, done = FRAME.unpack(data)
        return np.array(obs, np.float32), reward, done

    def step(self, action):
        self.post(action)
        return self.fetch()


def step_all(clients, actions):
    if FIXED:
        for client, action in zip(clients, actions, strict=True):
            client.post(action)
        results = [client.fetch() for client in clients]
    else:
        results = [client.step(action) for client, action in zip(clients, actions, strict=True)]
    obs, rewards, dones = zip(*results, strict=True)
    return np.stack(obs), np.array(rewards, np.float32), np.array(dones, np.float32)


def main(num_clients=8, iterations=70, horizon=8):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ports = mp.get_context("fork").Queue()
    server = mp.get_context("fork").Process(target=serve, args=(ports, num_clients), daemon=True)
    server.start()
    port = ports.get()
    start = time.perf_counter()
    clients = [WarehouseClient(port) for _ in range(num_clients)]
    body = nn.Sequential(nn.Linear(OBS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, ACTIONS + 1))
    optim = torch.optim.Adam(body.parameters(), lr=1e-3)
    obs = np.stack([client.reset() for client in clients])
    for _ in range(iterations):
        trail = []
        for _ in range(horizon):
            with torch.no_grad():
                out = body(torch.from_numpy(obs))
                actions = torch.distributions.Categorical(logits=out[:, :-1]).sample()
            nxt, rewards, dones = step_all(clients, actions.tolist())
            trail.append((torch.from_numpy(obs), actions, torch.from_numpy(rewards), torch.from_numpy(dones)))
            obs = nxt
        with torch.no_grad():
            running = body(torch.from_numpy(obs))[:, -1]
        targets = []
        for _, _, rewards, dones in reversed(trail):
            running = rewards + 0.95 * (1 - dones) * running
            targets.insert(0, running)
        s = torch.cat([row[0] for row in trail])
        a = torch.cat([row[1] for row in trail])
        y = torch.cat(targets)
        out = body(s)
        dist, value = torch.distributions.Categorical(logits=out[:, :-1]), out[:, -1]
        loss = -(dist.log_prob(a) * (y - value).detach()).mean() + 0.5 * (y - value).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    total = iterations * horizon * num_clients
    print(f"env_steps={total} updates={iterations} seconds={time.perf_counter() - start:.2f}")
    server.terminate()


if __name__ == "__main__":
    main()
