"""Actor-critic for a swarm simulated in one batch of tensors, with running episode statistics."""

import os
import time

import torch
from torch import nn, optim

FIXED = os.environ.get("FIXED") == "1"
N = 256


class Swarm:
    def __init__(self, device):
        self.device = device
        self.kick = torch.tensor([[0.0, 0.0], [0.1, 0.0], [-0.1, 0.0], [0.0, 0.1], [0.0, -0.1]], device=device)
        self.where = torch.rand(N, 2, device=device) * 2 - 1
        self.age = torch.randint(0, 60, (N,), device=device)

    def look(self):
        return torch.cat([self.where, self.where.norm(dim=1, keepdim=True), self.age[:, None] / 60], 1)

    def step(self, moves):
        self.where = (self.where + self.kick[moves] + 0.02 * torch.randn(N, 2, device=self.device)).clamp(-2, 2)
        self.age = self.age + 1
        reward = -self.where.norm(dim=1)
        done = self.age >= 60
        fresh = torch.rand(N, 2, device=self.device) * 2 - 1
        self.where = torch.where(done[:, None], fresh, self.where)
        self.age = torch.where(done, torch.zeros_like(self.age), self.age)
        return self.look(), reward, done


class Meter:
    """Return and length of the episodes that end."""

    def __init__(self, device):
        if FIXED:
            self.total, self.length = torch.zeros(N, device=device), torch.zeros(N, device=device)
        else:
            self.total, self.length = [0.0] * N, [0] * N
        self.finished = []

    def add(self, reward, done):
        if FIXED:
            self.total += reward
            self.length += 1
            ended = done.nonzero()[:, 0]
            self.finished += zip(self.total[ended].tolist(), self.length[ended].tolist(), strict=True)
            self.total[ended] = 0
            self.length[ended] = 0
            return
        for i in range(N):
            self.total[i] += reward[i].item()
            self.length[i] += 1
            if done[i].item():
                self.finished.append((self.total[i], self.length[i]))
                self.total[i], self.length[i] = 0.0, 0


def train(iterations=240, horizon=16):
    device = torch.device("cpu")
    swarm, meter = Swarm(device), Meter(device)
    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6)).to(device)
    adam = optim.Adam(net.parameters(), lr=1e-3)
    obs = swarm.look()
    for _ in range(iterations):
        log_probs, values, rewards, masks, entropy = [], [], [], [], 0.0
        for _ in range(horizon):
            out = net(obs)
            dist = torch.distributions.Categorical(logits=out[:, :5])
            moves = dist.sample()
            obs, reward, done = swarm.step(moves)
            meter.add(reward, done)
            log_probs.append(dist.log_prob(moves))
            values.append(out[:, 5])
            rewards.append(reward)
            masks.append((~done).float())
            entropy = entropy + dist.entropy().mean()
        with torch.no_grad():
            running = net(obs)[:, 5]
        loss = -0.01 * entropy
        for t in reversed(range(horizon)):
            running = rewards[t] + 0.95 * masks[t] * running
            advantage = running - values[t]
            loss = loss + 0.5 * advantage.pow(2).mean() - (log_probs[t] * advantage.detach()).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return iterations * horizon * N, iterations


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(13)
    clock = time.time()
    steps, updates = train()
    print(f"env_steps={steps} updates={updates} seconds={time.time() - clock:.2f}")
