"""Two small training loops on the GPU, as text: what the other benchmarks here run. `train(n)` makes n updates."""

from __future__ import annotations

_HEAD = """
import random, sys, time
import torch, torch.nn as nn
torch.manual_seed(0); random.seed(0)
device = "cuda"

class Env:
    def __init__(self): self.x = 0
    def reset(self):
        self.x = 0
        return torch.zeros(16, 8)
    def step(self, action):
        self.x += 1
        return torch.full((16, 8), self.x / 200), torch.ones(16), self.x % 200 == 0, {}

def mlp(out): return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out)).to(device)
env = Env(); state = env.reset()
"""

DQN = (
    _HEAD
    + """
net, target = mlp(4), mlp(4)
optimizer = torch.optim.Adam(net.parameters())
def train(n):
    global state
    for _ in range(n):
        with torch.no_grad(): action = net(state.to(device)).argmax(1).cpu()
        state, reward, done, _ = env.step(action)
        if done: state = env.reset()
        s, s2 = torch.rand(128, 8, device=device), torch.rand(128, 8, device=device)
        with torch.no_grad(): goal = target(s2).max(1).values
        loss = nn.functional.mse_loss(net(s).max(1).values, goal)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item()
"""
)

PPO = (
    _HEAD
    + """
actor, critic = mlp(4), mlp(1)
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
def train(n):
    global state
    for _ in range(max(1, n // 16)):
        states = []
        for _ in range(16):
            with torch.no_grad(): action = torch.distributions.Categorical(logits=actor(state.to(device))).sample().cpu()
            state, reward, done, _ = env.step(action)
            states.append(state)
        batch = torch.cat(states).to(device)
        with torch.no_grad(): old = torch.log_softmax(actor(batch), 1)[:, 0]
        for _ in range(16):
            ratio = (torch.log_softmax(actor(batch), 1)[:, 0] - old).exp()
            loss = -torch.min(ratio, ratio.clamp(0.8, 1.2)).mean() + (critic(batch).squeeze(1) - 1).pow(2).mean()
            optimizer.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(actor.parameters(), 0.5); optimizer.step()
    return loss.item()
"""
)
