"""Self-play for four-in-a-row on a 4x4 board: search threads share one evaluator, the learner fits the net to the visits."""
import math
import os
import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
PLAYERS, SIMS, MOVES, ROUNDS, EPOCHS = 10, 20, 8, 7, 10
LINES = ([sum(1 << (4 * r + c) for c in range(4)) for r in range(4)] + [sum(1 << (4 * r + c) for r in range(4)) for c in range(4)]
         + [sum(1 << (5 * i) for i in range(4)), sum(1 << (3 * i + 3) for i in range(4))])


def result_of(state):
    if any(state[1] & line == line for line in LINES):
        return -1.0
    return 0.0 if state[0] | state[1] == 0xFFFF else None


def planes(state):
    return np.array([(side >> i) & 1 for side in state for i in range(16)], dtype=np.float32)


class Node:
    def __init__(self, state, prior=None, value=None):
        self.state, self.value = state, value
        if prior is not None:
            free = [i for i in range(16) if not (state[0] | state[1]) >> i & 1]
            mass = sum(prior[i] for i in free) + 1e-8
            self.prior = {i: prior[i] / mass for i in free}
            self.visits, self.total, self.kids = dict.fromkeys(free, 0), dict.fromkeys(free, 0.0), {}

    def pick(self):
        root = math.sqrt(1 + sum(self.visits.values()))
        return max(self.prior, key=lambda i: self.total[i] / (self.visits[i] or 1) + 1.5 * self.prior[i] * root / (1 + self.visits[i]))


class Evaluator(threading.Thread):
    def __init__(self, net, max_batch=16, window=0.002):
        super().__init__(daemon=True)
        self.net, self.max_batch, self.window = net, max_batch, window
        self.requests, self.lock, self.clients = queue.Queue(), threading.Lock(), 0

    def ask(self, state):
        self.requests.put((planes(state), answer := Future()))
        return answer.result()

    def gather(self):
        batch = [self.requests.get()]
        deadline = time.monotonic() + self.window
        while len(batch) < (min(self.max_batch, self.clients) if FIXED else self.max_batch):
            try:
                batch.append(self.requests.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
        return batch

    def run(self):
        while True:
            batch = self.gather()
            with torch.no_grad():
                logits, values = self.net(torch.from_numpy(np.stack([features for features, _ in batch])))
            for (_, answer), prior, value in zip(batch, logits.softmax(-1).tolist(), values.tolist()):
                answer.set_result((prior, value))


class Net(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 17))

    def forward(self, x):
        out = self.body(x)
        return out[:, :16], torch.tanh(out[:, 16])


def search(state, evaluator):
    root = Node(state, evaluator.ask(state)[0])
    for _ in range(SIMS):
        node, path = root, []
        while node is not None and node.value is None:
            path.append((node, node.pick()))
            node = node.kids.get(path[-1][1])
        if node is None:
            parent, move = path[-1]
            state = (parent.state[1], parent.state[0] | 1 << move)
            value = result_of(state)
            parent.kids[move] = Node(state, value=value)
            if value is None:
                prior, value = evaluator.ask(state)
                parent.kids[move] = Node(state, prior)
        value = value if node is None else node.value
        for parent, move in reversed(path):
            value, parent.visits[move] = -value, parent.visits[move] + 1
            parent.total[move] += value
    return root


def player(evaluator, seed):
    rng, state, records = np.random.default_rng(seed), (0, 0), []
    for _ in range(MOVES):
        root = search(state, evaluator)
        target = np.zeros(16)
        target[list(root.visits)] = np.array(list(root.visits.values())) / SIMS
        records.append((planes(state), target, max(root.total[m] / (root.visits[m] or 1) for m in root.visits)))
        state = (state[1], state[0] | 1 << int(rng.choice(16, p=target)))
        state = (0, 0) if result_of(state) is not None else state
    with evaluator.lock:
        evaluator.clients -= 1
    return records


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    evaluator, pool = Evaluator(net), ThreadPoolExecutor(PLAYERS)
    evaluator.start()
    start = time.perf_counter()
    for rnd in range(ROUNDS):
        evaluator.clients = PLAYERS
        games = list(pool.map(lambda seat: player(evaluator, 100 * rnd + seat), range(PLAYERS)))
        x, target, z = (torch.from_numpy(np.array(column, dtype=np.float32)) for column in zip(*sum(games, [])))
        for _ in range(EPOCHS):
            logits, values = net(x)
            loss = -(target * logits.log_softmax(-1)).sum(-1).mean() + (values - z).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    seconds = time.perf_counter() - start
    print(f"env_steps={ROUNDS * PLAYERS * MOVES} updates={ROUNDS * EPOCHS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
