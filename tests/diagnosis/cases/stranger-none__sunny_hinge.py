"""Preference-based RL: a reward ensemble learned from segment comparisons drives a policy."""
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


@dataclass
class PrefConfig:
    num_envs: int = 96
    rollout: int = 48
    rounds: int = 11
    segment: int = 12
    pairs: int = 192
    reward_steps: int = 6
    ensemble: int = 4
    width: int = 96
    epochs: int = 5
    gamma: float = 0.95
    seed: int = 17


class Sailing:
    """Boats in a current, one row per boat; the true reward is seen by the teacher only."""

    def __init__(self, cfg):
        self.n, self.horizon = cfg.num_envs, 64
        self.clock = torch.randint(0, self.horizon, (self.n,))
        self.pos, self.heading = torch.rand(self.n, 2) * 2 - 1, torch.rand(self.n) * 6.28

    def observe(self):
        away = self.pos.norm(dim=1)
        return torch.stack([*self.pos.T, self.heading.cos(), self.heading.sin(), away], 1)

    def step(self, act):
        self.heading = self.heading + 0.5 * act[:, 0].clamp(-1, 1)
        thrust = 0.06 * (1 + act[:, 1].clamp(-1, 1))
        course = torch.stack([self.heading.cos(), self.heading.sin()], 1)
        current = 0.03 * torch.stack([-self.pos[:, 1], self.pos[:, 0]], 1)
        self.pos = (self.pos + thrust[:, None] * course + current).clamp(-2, 2)
        true_reward = -self.pos.norm(dim=1) - 0.5 * thrust
        self.clock += 1
        done = self.clock >= self.horizon
        self.clock *= ~done
        self.pos = torch.where(done[:, None], torch.rand(self.n, 2) * 2 - 1, self.pos)
        return self.observe(), true_reward, done.float()


class RewardEnsemble(nn.Module):
    def __init__(self, cfg, inputs):
        super().__init__()
        sizes = [inputs, cfg.width, cfg.width, 1]
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(cfg.ensemble, a, b) / a**0.5) for a, b in zip(sizes, sizes[1:])]
        )
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(cfg.ensemble, 1, b)) for b in sizes[1:]])

    def forward(self, x):
        h = x.flatten(0, -2).expand(len(self.weights[0]), -1, -1)
        for i, (w, b) in enumerate(zip(self.weights, self.biases)):
            h = torch.baddbmm(b, h, w)
            h = F.leaky_relu(h, 0.1) if i < 2 else torch.tanh(h)
        return h.view(-1, *x.shape[:-1])


class RewardLearner:
    def __init__(self, cfg):
        self.cfg, self.model = cfg, RewardEnsemble(cfg, 7)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def segments(self, steps, true_reward):
        t = torch.randint(0, self.cfg.rollout - self.cfg.segment, (2 * self.cfg.pairs, 1)) + torch.arange(self.cfg.segment)
        e = torch.randint(0, self.cfg.num_envs, (2 * self.cfg.pairs, 1))
        return steps[t, e].unflatten(0, (2, -1)), true_reward[t, e].sum(1).view(2, -1)

    def fit(self, steps, true_reward):
        for _ in range(self.cfg.reward_steps):
            parts, score = self.segments(steps, true_reward)
            label = torch.bernoulli(torch.sigmoid(4.0 * (score[0] - score[1])))
            total = self.model(parts).sum(-1)
            loss = F.binary_cross_entropy_with_logits(total[:, 0] - total[:, 1], label.expand(self.cfg.ensemble, -1))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


class Agent:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = nn.Sequential(nn.Linear(5, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 5))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def split(self, obs):
        out = self.net(obs)
        return torch.distributions.Normal(out[..., :2], out[..., 2:4].clamp(-2, 0).exp(), validate_args=False), out[..., 4]

    def improve(self, obs, act, old, reward, done, last):
        with torch.no_grad():
            value = self.split(torch.cat([obs, last[None]]))[1]
            delta = reward + self.cfg.gamma * (1 - done) * value[1:] - value[:-1]
            adv, run = torch.empty_like(delta), torch.zeros_like(delta[0])
            for t in range(len(delta) - 1, -1, -1):
                run = adv[t] = delta[t] + self.cfg.gamma * 0.9 * (1 - done[t]) * run
            target, scaled = adv + value[:-1], (adv - adv.mean()) / adv.std()
        for _ in range(self.cfg.epochs):
            dist, value = self.split(obs)
            ratio = (dist.log_prob(act).sum(-1) - old).exp()
            gain = torch.min(ratio * scaled, ratio.clamp(0.8, 1.2) * scaled).mean()
            loss = 0.5 * F.mse_loss(value, target) - gain - 1e-3 * dist.entropy().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


cfg = PrefConfig()
torch.manual_seed(cfg.seed)
env, agent, learner, curve = Sailing(cfg), Agent(cfg), RewardLearner(cfg), []
start, obs = time.perf_counter(), env.observe()
for _ in range(cfg.rounds):
    rows = []
    with torch.no_grad():
        for _ in range(cfg.rollout):
            dist, _ = agent.split(obs)
            act = dist.sample()
            nxt, true_reward, done = env.step(act)
            rows.append((obs, act, dist.log_prob(act).sum(-1), true_reward, done))
            obs = nxt
    states, actions, old, true_reward, done = map(torch.stack, zip(*rows))
    learner.fit(torch.cat([states, actions], -1), true_reward)
    with torch.no_grad():
        reward = learner.model(torch.cat([states, actions], -1)).mean(0)
    agent.improve(states, actions, old, reward, done, obs)
    curve.append(true_reward.mean().item())
seconds = time.perf_counter() - start
print(f"true reward {curve[0]:.3f} -> {curve[-1]:.3f}")
print(f"env_steps={cfg.rounds * cfg.rollout * cfg.num_envs} updates={cfg.rounds * (cfg.epochs + cfg.reward_steps)} seconds={seconds:.3f}")
