"""R2D2-style recurrent Q-learning: actor threads, one inference thread that batches for them, learner in main.
The task: a cue is shown once; after some distraction it must be named.
"""
import copy
import os
import queue
import random
import threading
import time
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
OBS, ACTIONS, HID = 8, 4, 48
N_ACTORS, SEQ, BURN_IN, BATCH, ACTOR_STEPS = 6, 20, 4, 16, 1800
INFERENCE = {"max_batch": N_ACTORS if FIXED else 8, "max_wait": 0.0025}


class Recall:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.cue, self.delay, self.t = self.rng.integers(ACTIONS), self.rng.integers(4, 14), 0
        return self.observe()

    def observe(self):
        obs = 0.2 * self.rng.random(OBS, dtype=np.float32)
        if self.t in (0, self.delay):
            obs[self.cue if self.t == 0 else ACTIONS] = 1.0
        return obs

    def step(self, action):
        done = self.t == self.delay
        self.t += 1
        return self.observe(), float(done and action == self.cue), done


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.cell, self.out = nn.Linear(OBS, HID), nn.LSTMCell(HID, HID), nn.Linear(HID, ACTIONS)

    def step(self, obs, state):
        h, c = self.cell(F.relu(self.inp(obs)), state)
        return self.out(h), (h, c)

    def unroll(self, obs, first, h, c):
        x, keep, hs = F.relu(self.inp(obs)), (1.0 - first).unsqueeze(-1), []
        for t in range(obs.shape[0]):
            h, c = self.cell(x[t], (h * keep[t], c * keep[t]))
            hs.append(h)
        return self.out(torch.stack(hs))


class InferenceServer(threading.Thread):
    def __init__(self, net, max_batch, max_wait):
        super().__init__(daemon=True)
        self.net, self.max_batch, self.max_wait = net, max_batch, max_wait
        self.requests, self.replies = queue.Queue(), [queue.Queue() for _ in range(N_ACTORS)]
        self.h, self.c = torch.zeros(N_ACTORS, HID), torch.zeros(N_ACTORS, HID)

    def infer(self, idx, obs, first):
        self.requests.put((idx, obs, first))
        return self.replies[idx].get()

    def gather(self):
        batch = [self.requests.get()]
        deadline = time.monotonic() + self.max_wait
        try:
            while len(batch) < self.max_batch and batch[-1] is not None:
                batch.append(self.requests.get(timeout=max(deadline - time.monotonic(), 0.0)))
        except queue.Empty:
            pass
        return batch

    def run(self):
        while (batch := self.gather())[-1] is not None:
            ids, obs, first = (list(x) for x in zip(*batch))
            with torch.no_grad():
                keep = 1.0 - torch.from_numpy(np.array(first, np.float32)).unsqueeze(-1)
                h, c = self.h[ids] * keep, self.c[ids] * keep
                q, (self.h[ids], self.c[ids]) = self.net.step(torch.from_numpy(np.stack(obs)), (h, c))
            for idx, *reply in zip(ids, q.numpy(), h.numpy(), c.numpy()):
                self.replies[idx].put(reply)


def act(idx, server, out):
    env, rng, eps = Recall(idx), np.random.default_rng(100 + idx), 0.4 ** (1 + idx)
    obs, first = env.reset(), True
    for _ in range(ACTOR_STEPS // SEQ):
        rows, state = [], None
        for _ in range(SEQ):
            q, h, c = server.infer(idx, obs, first)
            state = state or (h, c)
            action = rng.integers(ACTIONS) if rng.random() < eps else q.argmax()
            following, reward, done = env.step(action)
            rows.append((obs, action, reward, first))
            obs, first = (env.reset() if done else following), done
        o, a, r, f = zip(*rows)
        out.put((np.stack(o), np.array(a), np.array(r, np.float32), np.array(f, np.float32), *state))


def learn(net, target, optimizer, samples):
    *steps, h, c = (tuple(map(torch.from_numpy, x)) for x in zip(*samples))
    (obs, taken, rew, first), h, c = (torch.stack(x, 1) for x in steps), torch.stack(h), torch.stack(c)
    q = net.unroll(obs, first, h, c)
    with torch.no_grad():
        ahead = target.unroll(obs, first, h, c)[1:].gather(-1, q[1:].argmax(-1, keepdim=True)).squeeze(-1)
        goal = rew[:-1] + 0.97 * (1.0 - first[1:]) * ahead
    value = q[:-1].gather(-1, taken[:-1].unsqueeze(-1)).squeeze(-1)
    optimizer.zero_grad()
    F.smooth_l1_loss(value[BURN_IN:], goal[BURN_IN:]).backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    net = QNet()
    target, acting = copy.deepcopy(net), copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    server, out, replay = InferenceServer(acting, **INFERENCE), queue.Queue(), deque(maxlen=300)
    threads = [server, *(threading.Thread(target=act, args=(i, server, out), daemon=True) for i in range(N_ACTORS))]
    updates = 0
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for n in range(N_ACTORS * ACTOR_STEPS // SEQ):
        replay.append(out.get())
        if len(replay) >= BATCH and n % 2 == 0:
            learn(net, target, optimizer, random.sample(replay, BATCH))
            updates += 1
            for copied, every in ((acting, 10), (target, 50)):
                if updates % every == 0:
                    copied.load_state_dict(net.state_dict())
    seconds = time.perf_counter() - start
    server.requests.put(None)
    for thread in threads:
        thread.join()
    print(f"env_steps={N_ACTORS * ACTOR_STEPS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
