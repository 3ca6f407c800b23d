"""Evolution strategies on pendulum swing-up with worker processes reached over sockets.

Only seeds and the current parameters travel; every worker draws its own noise.
"""
import math
import multiprocessing as mp
import os
import socket
import struct
import time

import numpy as np
import torch

FIXED = os.environ.get("FIXED") == "1"
GENERATIONS = 56
WORKERS = 2
PAIRS = 4
EVALS = 10
HORIZON = 150
HIDDEN = 16
DIM = 3 * HIDDEN + HIDDEN + HIDDEN + 1
SIGMA = 0.1


class Pendulum:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.angle, self.speed = math.pi + self.rng.uniform(-0.3, 0.3), 0.0
        return math.cos(self.angle), math.sin(self.angle), self.speed

    def step(self, torque):
        angle = (self.angle + math.pi) % (2 * math.pi) - math.pi
        cost = angle * angle + 0.1 * self.speed**2 + 0.001 * torque * torque
        speed = self.speed + (15.0 * math.sin(self.angle) + 3.0 * torque) * 0.05
        self.speed = min(max(speed, -8.0), 8.0)
        self.angle += 0.05 * self.speed
        return (math.cos(self.angle), math.sin(self.angle), 0.2 * self.speed), -cost


def episode(env, theta):
    w1, b1, w2, b2 = np.split(theta, [3 * HIDDEN, 4 * HIDDEN, 5 * HIDDEN])
    w1 = w1.reshape(3, HIDDEN)
    total, obs = 0.0, env.reset()
    for _ in range(HORIZON):
        out = np.tanh(np.asarray(obs) @ w1 + b1) @ w2 + b2[0]
        obs, reward = env.step(2.0 * math.tanh(out))
        total += reward
    return total / HORIZON


class Link:  # length-prefixed messages over a stream socket
    def __init__(self, sock):
        self.sock, self.reader = sock, sock.makefile("rb")
        if FIXED:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, body):
        self.sock.sendall(struct.pack("!I", len(body)))
        self.sock.sendall(body)

    def recv(self):
        (size,) = struct.unpack("!I", self.reader.read(4))
        return self.reader.read(size)


def noise(seed):
    return np.random.default_rng(int(seed)).standard_normal(DIM)


def worker(address, index):
    torch.set_num_threads(1)
    env = Pendulum(np.random.default_rng(100 + index))
    with socket.create_connection(address) as sock:
        link = Link(sock)
        while body := link.recv():
            seeds = np.frombuffer(body, dtype=np.int64, count=PAIRS)
            theta = np.frombuffer(body, dtype=np.float64, offset=8 * PAIRS)
            scores = np.empty((PAIRS, 2))
            for i, seed in enumerate(seeds):
                eps = SIGMA * noise(seed)
                scores[i] = episode(env, theta + eps), episode(env, theta - eps)
            link.send(scores.tobytes())


class Farm:
    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        context = mp.get_context("fork")
        self.links, self.processes = [], []
        for index in range(WORKERS):
            process = context.Process(target=worker, args=(listener.getsockname(), index), daemon=True)
            process.start()
            self.processes.append(process)
            self.links.append(Link(listener.accept()[0]))
        listener.close()

    def evaluate(self, theta, seeds):
        for link, chunk in zip(self.links, seeds):
            link.send(chunk.tobytes() + theta.tobytes())
        replies = [np.frombuffer(link.recv(), dtype=np.float64) for link in self.links]
        return np.concatenate(replies).reshape(-1, 2)

    def close(self):
        for process, link in zip(self.processes, self.links):
            link.send(b"")
            process.join()
            link.sock.close()


def improve(theta, optimizer, seeds, scores):
    ranks = scores.ravel().argsort().argsort().reshape(scores.shape) / (scores.size - 1) - 0.5
    weights = ranks[:, 0] - ranks[:, 1]
    grad = sum(w * noise(s) for w, s in zip(weights, seeds.ravel())) / (len(weights) * SIGMA)
    theta.grad = torch.from_numpy(0.005 * theta.detach().numpy() - grad)
    optimizer.step()


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(7)
    farm = Farm()
    theta = torch.from_numpy(0.3 * rng.standard_normal(DIM)).requires_grad_()
    optimizer = torch.optim.Adam([theta], lr=0.03)
    env = Pendulum(rng)
    steps, history = 0, []
    start = time.perf_counter()
    for _ in range(GENERATIONS):
        seeds = rng.integers(1 << 31, size=(WORKERS, PAIRS), dtype=np.int64)
        scores = farm.evaluate(theta.detach().numpy(), seeds)
        improve(theta, optimizer, seeds, scores)
        mean = theta.detach().numpy()
        history.append(np.mean([episode(env, mean) for _ in range(EVALS)]))
        steps += (scores.size + EVALS) * HORIZON
    seconds = time.perf_counter() - start
    farm.close()
    print(f"first score {history[0]:.3f} last score {history[-1]:.3f}")
    print(f"env_steps={steps} updates={GENERATIONS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
