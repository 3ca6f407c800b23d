"""Hand-written double DQN: an environment class without any base class, a replay buffer on a deque, polyak averaging.

python plain_dqn.py [--steps 16000]
"""

import argparse
import collections
import math
import os
import random

import numpy as np
import torch
from torch import nn
from truth import Truth

truth = Truth()


class DroneLanding:
    """A drone above a pad: thrust left, right, up or nothing. Nothing here knows about gymnasium."""

    actions = 4

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.reset()

    def reset(self):
        self.x, self.y = self.random.uniform(-1, 1), self.random.uniform(0.8, 1.2)
        self.vx, self.vy = self.random.uniform(-0.1, 0.1), 0.0
        self.ticks = 0
        return self.observe()

    def observe(self):
        distance = math.hypot(self.x, self.y)
        return np.array([self.x, self.y, self.vx, self.vy, distance, math.atan2(self.y, self.x)], dtype=np.float32)

    def step(self, action):
        before = math.hypot(self.x, self.y)
        for _ in range(4):  # physics at four times the rate of the decisions
            self.vx += 0.02 * ((action == 2) - (action == 1)) * 0.25
            self.vy += (0.03 * (action == 3) - 0.01) * 0.25
            self.vx *= 0.995
            self.x += self.vx * 0.25
            self.y += self.vy * 0.25
        self.ticks += 1
        landed = self.y <= 0
        lost = abs(self.x) > 2 or self.y > 2
        done = landed or lost or self.ticks >= 200
        reward = before - math.hypot(self.x, self.y)
        if landed:
            reward += 1.0 - abs(self.x) - 10 * max(-self.vy - 0.05, 0)
        elif lost:
            reward -= 1.0
        return self.observe(), reward, done, {}


class ReplayBuffer:
    def __init__(self, size):
        self.memory = collections.deque(maxlen=size)

    def push(self, *transition):
        self.memory.append(transition)

    def sample(self, count):
        batch = random.sample(self.memory, count)
        states, actions, rewards, next_states, dones = zip(*batch, strict=True)
        return (
            torch.tensor(np.stack(states)),
            torch.tensor(actions),
            torch.tensor(rewards, dtype=torch.float32),
            torch.tensor(np.stack(next_states)),
            torch.tensor(dones, dtype=torch.float32),
        )

    def __len__(self):
        return len(self.memory)


def make_network():
    return nn.Sequential(nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, DroneLanding.actions))


class Trainer:
    def __init__(self):
        self.net = make_network()
        self.target = make_network()
        self.target.load_state_dict(self.net.state_dict())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.buffer = ReplayBuffer(20_000)
        self.updates = 0

    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(DroneLanding.actions)
        with torch.no_grad():
            return int(self.net(torch.from_numpy(state)).argmax())

    def train_step(self):
        states, actions, rewards, next_states, dones = self.buffer.sample(64)
        with torch.no_grad():
            best = self.net(next_states).argmax(1, keepdim=True)
            goal = rewards + 0.99 * (1 - dones) * self.target(next_states).gather(1, best).squeeze(1)
        values = self.net(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(values, goal)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.optimizer.step()
        self.updates += 1
        return loss.item()

    def polyak_update(self, tau=0.005):
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
                slow.mul_(1 - tau).add_(fast, alpha=tau)


def evaluate(trainer, episodes):
    env = DroneLanding(seed=1234)
    returns = []
    for _ in range(episodes):
        state, done, total = env.reset(), False, 0.0
        while not done:
            state, reward, done, _ = env.step(trainer.act(state, epsilon=0.0))
            total += reward
        returns.append(total)
    return sum(returns) / len(returns)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--eval-every", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    os.makedirs("checkpoints", exist_ok=True)

    env = DroneLanding(args.seed)
    trainer = Trainer()
    state, episode_return, losses = env.reset(), 0.0, []
    truth.start()
    for step in range(1, args.steps + 1):
        epsilon = max(0.05, 1.0 - step / (0.5 * args.steps))
        action = trainer.act(state, epsilon)
        next_state, reward, done, _ = env.step(action)
        trainer.buffer.push(state, action, reward, next_state, done)
        state = next_state
        episode_return += reward
        if done:
            truth.keep(episode_return)
            state, episode_return = env.reset(), 0.0

        if len(trainer.buffer) >= 500 and step % 4 == 0:
            truth.enter("learn")
            losses.append(trainer.train_step())
            trainer.polyak_update()
            truth.enter("collect")

        if step % 1000 == 0 and losses:
            truth.enter("log")
            print(f"step {step:>7}  epsilon {epsilon:.2f}  loss {np.mean(losses[-250:]):.5f}")
            truth.enter("collect")
        if args.eval_every and step % args.eval_every == 0:
            truth.enter("eval")
            score = evaluate(trainer, episodes=10)
            truth.enter("log")
            truth.keep(score)
            print(f"step {step:>7}  evaluation {score:.3f}")
            truth.enter("checkpoint")
            torch.save(trainer.net.state_dict(), f"checkpoints/dqn_{step}.pt")
            truth.enter("collect")
    truth.stop()
    truth.keep(*losses)
    truth.keep_weights(trainer.net.parameters())
    truth.tell(env_steps=args.steps, updates=trainer.updates)


if __name__ == "__main__":
    main()
