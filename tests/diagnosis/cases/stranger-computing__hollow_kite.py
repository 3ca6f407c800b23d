"""Synchronous actor-critic: two actor processes roll out the policy that the learner leaves in shared memory."""
import multiprocessing as mp
import os
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

FIXED = os.environ.get("FIXED") == "1"

SEED = 29
ROUNDS, ACTORS, STEPS = 70, 2, 128
MINIBATCH = 128
OBS, ACT, HIDDEN = 10, 4, 512
GAMMA = 0.98


class Conveyor:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.lanes = self.rng.uniform(0, 1, 5)
        self.arm, self.load = 2, 0.0

    def observe(self):
        obs = np.zeros(OBS, dtype=np.float32)
        obs[:5], obs[9] = self.lanes, self.load
        obs[5 + min(self.arm, 3)] = 1.0
        return obs

    def step(self, action):
        reward = -0.01
        if action == 0:
            self.arm = max(0, self.arm - 1)
        elif action == 1:
            self.arm = min(4, self.arm + 1)
        elif action == 2:
            reward += float(self.lanes[self.arm]) - 0.5
            self.lanes[self.arm] = 0.0
            self.load = min(1.0, self.load + 0.1)
        else:
            self.load = max(0.0, self.load - 0.2)
        self.lanes = np.minimum(1.0, self.lanes + self.rng.uniform(0, 0.08, 5))
        return self.observe(), reward - 0.3 * self.load


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi, self.v = self.tower(ACT, 0.01), self.tower(1, 1.0)

    @staticmethod
    def tower(outputs, gain):
        layers = [nn.Linear(OBS, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, outputs)]
        for layer, scale in zip(layers, (1.4, 1.4, gain)):
            nn.init.orthogonal_(layer.weight, scale)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def fetch_policy(shared, policy):
    if policy is None:
        policy = ActorCritic()
    vector_to_parameters(shared.clone(), policy.parameters())
    return policy


def rollout(env, obs, policy, rng):
    steps = []
    for _ in range(STEPS):
        with torch.no_grad():
            logits = policy.pi(torch.from_numpy(obs)).numpy()
        action = int(np.argmax(logits + rng.gumbel(size=ACT)))
        next_obs, reward = env.step(action)
        steps.append((obs, action, reward))
        obs = next_obs
    observations, actions, rewards = zip(*steps)
    return np.stack((*observations, obs)), np.array(actions), np.array(rewards, dtype=np.float32)


def act(conn, raw, index):
    torch.set_num_threads(1)
    shared = torch.from_numpy(np.frombuffer(raw, dtype=np.float32))
    env, rng = Conveyor(SEED + index), np.random.default_rng(100 + index)
    obs, policy = env.observe(), None
    while conn.recv():
        policy = fetch_policy(shared, policy if FIXED else None)
        batch = rollout(env, obs, policy, rng)
        obs = batch[0][-1]
        conn.send(batch)


def returns(rewards, last_value):
    out = np.empty_like(rewards)
    for t in reversed(range(len(rewards))):
        last_value = out[t] = rewards[t] + GAMMA * last_value
    return out


def update(net, optimizer, batches):
    with torch.no_grad():
        values = [net.v(torch.from_numpy(b[0])).squeeze(1).numpy() for b in batches]
    obs = torch.from_numpy(np.concatenate([b[0][:-1] for b in batches]))
    action = torch.from_numpy(np.concatenate([b[1] for b in batches]))
    goal = torch.from_numpy(np.concatenate([returns(b[2], v[-1]) for b, v in zip(batches, values)]))
    adv = goal - torch.from_numpy(np.concatenate([v[:-1] for v in values]))
    for i in torch.randperm(len(adv)).split(MINIBATCH):
        logp = net.pi(obs[i]).log_softmax(-1)
        gain = (logp.gather(1, action[i, None]).squeeze(1) * adv[i]).mean()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = 0.5 * (net.v(obs[i]).squeeze(1) - goal[i]).pow(2).mean() - gain - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    raw = mp.RawArray("f", sum(p.numel() for p in net.parameters()))
    shared = torch.from_numpy(np.frombuffer(raw, dtype=np.float32))
    pipes = [mp.Pipe() for _ in range(ACTORS)]
    actors = [mp.Process(target=act, args=(pipes[k][1], raw, k), daemon=True) for k in range(ACTORS)]
    for actor in actors:
        actor.start()

    rewards = []
    start = time.perf_counter()
    for _ in range(ROUNDS):
        shared.copy_(parameters_to_vector(net.parameters()).detach())
        for conn, _ in pipes:
            conn.send(True)
        batches = [conn.recv() for conn, _ in pipes]
        update(net, optimizer, batches)
        rewards.append(np.mean([b[2].mean() for b in batches]))
    seconds = time.perf_counter() - start

    for (conn, _), actor in zip(pipes, actors):
        conn.send(False)
        actor.join()
    print(f"reward per step: first {rewards[0]:.3f} last {np.mean(rewards[-5:]):.3f}")
    steps = ROUNDS * ACTORS * STEPS
    print(f"env_steps={steps} updates={steps // MINIBATCH} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
