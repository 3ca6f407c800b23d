"""PPO on CartPole: two processes step the environments, a policy server in this one picks the actions."""
import multiprocessing as mp
import os
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SEED = 41
WORKERS, ENVS_PER_WORKER = 2, 12
ITERATIONS, HORIZON = 110, 16
EPOCHS, MINIBATCH = 3, 128
GAMMA, LAMBDA = 0.99, 0.95
SERVER = {"max_batch": 64 if FIXED else 1}


def work(conn, first_seed):
    envs = [gym.make("CartPole-v1") for _ in range(ENVS_PER_WORKER)]
    obs = [env.reset(seed=first_seed + k)[0] for k, env in enumerate(envs)]
    reward, done = np.zeros(len(envs), np.float32), np.zeros(len(envs), np.float32)
    conn.send((np.stack(obs), reward, done))
    while (actions := conn.recv()) is not None:
        for k, env in enumerate(envs):
            obs[k], reward[k], terminated, truncated, _ = env.step(int(actions[k]))
            done[k] = terminated or truncated
            if done[k]:
                obs[k] = env.reset()[0]
        conn.send((np.stack(obs), reward, done))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h).log_softmax(-1), self.v(h).squeeze(-1)


class PolicyServer:
    """Queues the observations of all environments and answers them, oldest first."""

    def __init__(self, net, max_batch=32):
        self.net, self.max_batch = net, max_batch
        self.queue = deque()
        self.rng = np.random.default_rng(SEED)

    def submit(self, first_env, observations):
        self.queue.extend((first_env + k, obs) for k, obs in enumerate(observations))

    @torch.no_grad()
    def answer(self, observations):
        logp, value = self.net(torch.from_numpy(np.stack(observations)))
        draw = torch.from_numpy(self.rng.random((len(observations), 1), dtype=np.float32))
        action = (logp.exp().cumsum(-1)[:, :-1] < draw).sum(-1)
        return action.numpy(), logp.gather(1, action[:, None]).squeeze(1).numpy(), value.numpy()

    def serve(self):
        n = len(self.queue)
        action, logp, value = np.zeros(n, np.int64), np.zeros(n, np.float32), np.zeros(n, np.float32)
        while self.queue:
            count = min(self.max_batch, len(self.queue))
            ids, observations = zip(*(self.queue.popleft() for _ in range(count)))
            ids = list(ids)
            action[ids], logp[ids], value[ids] = self.answer(observations)
        return action, logp, value


class Learner:
    def __init__(self):
        self.net = ActorCritic()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-4)

    def update(self, obs, action, logp, value, reward, done):
        adv, last = np.zeros_like(reward), 0.0
        for t in reversed(range(HORIZON)):
            alive = 1.0 - done[t]
            delta = reward[t] + GAMMA * alive * value[t + 1] - value[t]
            adv[t] = last = delta + GAMMA * LAMBDA * alive * last
        goal = torch.from_numpy((adv + value[:-1]).ravel())
        adv, old = torch.from_numpy(adv.ravel()), torch.from_numpy(logp.ravel())
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        obs, action = torch.from_numpy(obs.reshape(-1, 4)), torch.from_numpy(action.reshape(-1, 1))
        for _ in range(EPOCHS):
            for i in torch.randperm(len(adv)).split(MINIBATCH):
                new, v = self.net(obs[i])
                ratio = (new.gather(1, action[i]).squeeze(1) - old[i]).exp()
                gain = torch.minimum(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean()
                loss = 0.5 * (v - goal[i]).pow(2).mean() - gain
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


def gather(conns):
    return [np.concatenate(column) for column in zip(*(conn.recv() for conn in conns))]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    pipes = [mp.Pipe() for _ in range(WORKERS)]
    conns = [ours for ours, _ in pipes]
    workers = [mp.Process(target=work, args=(pipes[k][1], SEED + 100 * k), daemon=True) for k in range(WORKERS)]
    for worker in workers:
        worker.start()
    learner = Learner()
    server = PolicyServer(learner.net, **SERVER)
    obs, _, _ = gather(conns)

    falls = []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        rows = []
        for _ in range(HORIZON):
            server.submit(0, obs)
            action, logp, value = server.serve()
            for conn, part in zip(conns, np.split(action, WORKERS)):
                conn.send(part)
            next_obs, reward, done = gather(conns)
            rows.append((obs, action, logp, value, reward, done))
            obs = next_obs
        columns = [np.stack(column) for column in zip(*rows)]
        with torch.no_grad():
            columns[3] = np.vstack((columns[3], learner.net(torch.from_numpy(obs))[1].numpy()))
        learner.update(*columns)
        falls.append(columns[5].sum())
    seconds = time.perf_counter() - start

    for conn, worker in zip(conns, workers):
        conn.send(None)
        worker.join()
    print(f"falls per rollout: first {np.mean(falls[:5]):.1f} last {np.mean(falls[-5:]):.1f}")
    steps = ITERATIONS * HORIZON * WORKERS * ENVS_PER_WORKER
    print(f"env_steps={steps} updates={EPOCHS * steps // MINIBATCH} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
