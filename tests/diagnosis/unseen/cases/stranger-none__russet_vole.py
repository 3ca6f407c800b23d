"""SAC, hand-written, on a batch of two-dimensional thrusters simulated in torch."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)

ENVS, ITERS, WARMUP, GRADS = 64, 380, 20, 1
HIDDEN, BATCH, GAMMA, TAU = 256, 256, 0.97, 0.01
CAPACITY = 20_000


class Thrusters:
    """Mass with drag; bring position and speed to zero; episodes of 60 steps."""

    def __init__(self, n):
        self.state = torch.zeros(n, 4)
        self.age = torch.randint(0, 60, (n,))
        self.restart(torch.ones(n, dtype=torch.bool))

    def restart(self, mask):
        fresh = torch.rand_like(self.state) * 2 - 1
        self.state = torch.where(mask[:, None], fresh, self.state)
        self.age = torch.where(mask, 0, self.age)

    def step(self, force):
        pos, vel = self.state[:, :2], self.state[:, 2:]
        vel = 0.95 * vel + 0.1 * force
        pos = pos + 0.1 * vel
        reward = -(pos.square().sum(1) + 0.1 * vel.square().sum(1) + 0.01 * force.square().sum(1))
        self.state = torch.cat([pos, vel], 1)
        after = self.state
        self.age = self.age + 1
        self.restart(self.age >= 60)
        return after, reward


class Pool:
    def __init__(self):
        self.rows = torch.zeros(CAPACITY, 4 + 2 + 1 + 4)
        self.at, self.size = 0, 0

    def add(self, *parts):
        block = torch.cat(parts, 1)
        self.rows[self.at:self.at + len(block)] = block
        self.at = (self.at + len(block)) % (CAPACITY - CAPACITY % ENVS)
        self.size = max(self.size, self.at)

    def sample(self):
        return self.rows[torch.randint(0, self.size, (BATCH,))].split([4, 2, 1, 4], dim=1)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.head = nn.Linear(HIDDEN, 4)

    def forward(self, obs):
        mean, log_std = self.head(self.body(obs)).chunk(2, 1)
        log_std = log_std.clamp(-5, 1)
        eps = torch.randn_like(mean)
        raw = mean + log_std.exp() * eps
        logp = (-0.5 * eps.square() - log_std - 0.919).sum(1)
        logp = logp - (2 * (0.6931 - raw - F.softplus(-2 * raw))).sum(1)
        return torch.tanh(raw), logp


class TwinQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.qs = nn.ModuleList(nn.Sequential(nn.Linear(6, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                                              nn.Linear(HIDDEN, 1)) for _ in range(2))

    def forward(self, obs, act):
        x = torch.cat([obs, act], 1)
        return self.qs[0](x).squeeze(1), self.qs[1](x).squeeze(1)


def main():
    env, pool = Thrusters(ENVS), Pool()
    policy, critic, target = Policy(), TwinQ(), TwinQ()
    target.load_state_dict(critic.state_dict())
    pi_opt = torch.optim.Adam(policy.parameters(), lr=7e-4)
    q_opt = torch.optim.Adam(critic.parameters(), lr=7e-4)
    q_params, t_params = list(critic.parameters()), list(target.parameters())
    log_alpha = torch.tensor(-2.0, requires_grad=True)
    al_opt = torch.optim.Adam([log_alpha], lr=1e-3)
    env_steps = updates = 0
    mean_reward = 0.0
    t0 = time.perf_counter()
    for it in range(ITERS):
        obs = env.state
        with torch.no_grad():
            act = policy(obs)[0] if it >= WARMUP else torch.rand(ENVS, 2) * 2 - 1
        nxt, rew = env.step(act)
        pool.add(obs, act, rew[:, None], nxt)
        env_steps += ENVS
        mean_reward += 0.05 * (rew.mean().item() - mean_reward)
        if it < WARMUP:
            continue
        for _ in range(GRADS):
            o, a, r, o2 = pool.sample()
            alpha = log_alpha.detach().exp()
            with torch.no_grad():
                a2, logp2 = policy(o2)
                y = r.squeeze(1) + GAMMA * (torch.min(*target(o2, a2)) - alpha * logp2)
            q1, q2 = critic(o, a)
            q_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
            q_opt.zero_grad()
            q_loss.backward()
            q_opt.step()
            for p in q_params:
                p.requires_grad_(False)
            new, logp = policy(o)
            pi_loss = (alpha * logp - torch.min(*critic(o, new))).mean()
            pi_opt.zero_grad()
            pi_loss.backward()
            pi_opt.step()
            for p in q_params:
                p.requires_grad_(True)
            al_loss = -(log_alpha * (logp.detach().mean() - 2.0))
            al_opt.zero_grad()
            al_loss.backward()
            al_opt.step()
            with torch.no_grad():
                torch._foreach_lerp_(t_params, q_params, TAU)
            updates += 1
        if it % 60 == 0:
            print(f"iter {it} reward {mean_reward:.3f} q {q_loss.item():.3f} alpha {alpha.item():.3f}")
    seconds = time.perf_counter() - t0
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
