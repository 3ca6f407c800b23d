"""Actor-critic on crane arms whose physics runs in a simulator of its own, reached over a local socket."""
import multiprocessing as mp
import os
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)
REQUEST, ANSWER = struct.Struct("<bf"), struct.Struct("<4f?")


def read(conn, n):
    data = b""
    while len(data) < n:
        part = conn.recv(n - len(data))
        if not part:
            return None
        data += part
    return data


def serve(conn, seed):
    """One arm of the simulator: it answers a request when its clock has reached the next control tick."""
    rng = np.random.default_rng(seed)
    angle, speed, t = 0.0, 0.0, 0
    while (data := read(conn, REQUEST.size)) is not None:
        reset, torque = REQUEST.unpack(data)
        if reset:
            angle, speed, t = float(rng.uniform(-1, 1)), 0.0, 0
        else:
            speed = 0.97 * speed + 0.1 * torque - 0.05 * angle
            angle, t = angle + 0.1 * speed, t + 1
            time.sleep(0.0012)
        conn.sendall(ANSWER.pack(angle, speed, t / 64, -angle * angle - 0.01 * torque * torque, t >= 64))


def simulator(listener, arms):
    threads = [threading.Thread(target=serve, args=(listener.accept()[0], i)) for i in range(arms)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Crane:
    def __init__(self, address):
        self.sock = socket.create_connection(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, reset, torque):
        self.sock.sendall(REQUEST.pack(reset, torque))
        a, v, t, r, done = ANSWER.unpack(read(self.sock, ANSWER.size))
        return np.array([a, v, t], np.float32), r, done

    def reset(self):
        return self.ask(1, 0.0)[0]

    def step(self, torque):
        obs, reward, done = self.ask(0, float(torque))
        return (self.reset() if done else obs), reward, done


class Fleet:
    def __init__(self, cranes):
        self.cranes = cranes
        self.pool = ThreadPoolExecutor(len(cranes)) if FIXED else None

    def reset(self):
        return np.stack([crane.reset() for crane in self.cranes])

    def step(self, torques):
        if FIXED:
            rows = list(self.pool.map(lambda pair: pair[0].step(pair[1]), zip(self.cranes, torques)))
        else:
            rows = [crane.step(torque) for crane, torque in zip(self.cranes, torques)]
        obs, reward, done = zip(*rows)
        return np.stack(obs), np.array(reward, np.float32), np.array(done, np.float32)


def main(arms=6, length=32, iterations=14):
    listener = socket.create_server(("127.0.0.1", 0))
    process = mp.get_context("fork").Process(target=simulator, args=(listener, arms), daemon=True)
    process.start()
    torch.manual_seed(9)
    fleet = Fleet([Crane(listener.getsockname()) for _ in range(arms)])
    actor = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
    critic = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
    opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 2e-3)
    obs, updates = fleet.reset(), 0
    start = time.perf_counter()
    for _ in range(iterations):
        seen, acts, rewards, dones = [], [], [], []
        for _ in range(length):
            x = torch.from_numpy(obs)
            with torch.no_grad():
                a = actor(x) + 0.3 * torch.randn(arms, 1)
            obs, reward, done = fleet.step(a[:, 0].numpy())
            for column, value in zip((seen, acts, rewards, dones), (x, a, reward, done)):
                column.append(value)
        with torch.no_grad():
            ret = critic(torch.from_numpy(obs))[:, 0].numpy()
        returns = np.zeros((length, arms), np.float32)
        for t in reversed(range(length)):
            returns[t] = ret = rewards[t] + 0.97 * (1 - dones[t]) * ret
        x, a, g = torch.cat(seen), torch.cat(acts), torch.from_numpy(returns).reshape(-1, 1)
        for _ in range(20):
            v = critic(x)
            logp = -(a - actor(x)) ** 2 / (2 * 0.3 ** 2)
            loss = -(logp * (g - v).detach()).mean() + (g - v).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            updates += 1
    seconds = time.perf_counter() - start
    for crane in fleet.cranes:
        crane.sock.close()
    process.join(2)
    print(f"env_steps={iterations * length * arms} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
