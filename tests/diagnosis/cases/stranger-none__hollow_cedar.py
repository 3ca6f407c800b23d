"""SAC on a numpy batch of torque-limited pendulums, with both critics in one batched network."""
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
RUN_NAME = f"sac_pendulums_{int(FIXED)}"

SEED, N_ENVS, HORIZON, OBS, ACT = 29, 16, 200, 3, 1
WARMUP, ITERATIONS, BATCH, HIDDEN = 100, 550, 256, 256
GAMMA, TAU, LR = 0.98, 0.005, 1e-3


class Pendulums:
    def __init__(self, n, rng):
        self.rng = rng
        self.th, self.w = rng.uniform(-np.pi, np.pi, n), rng.uniform(-1, 1, n)
        self.t = rng.integers(0, HORIZON, n)

    def obs(self):
        return np.stack([np.cos(self.th), np.sin(self.th), self.w], 1).astype(np.float32)

    def step(self, act):
        u = 2.0 * act[:, 0]
        angle = (self.th + np.pi) % (2 * np.pi) - np.pi
        reward = -(angle**2 + 0.1 * self.w**2 + 0.001 * u**2) / 8.0
        self.w = np.clip(self.w + (15.0 * np.sin(self.th) + 3.0 * u) * 0.05, -8, 8)
        self.th = self.th + 0.05 * self.w
        next_obs, self.t = self.obs(), self.t + 1
        over = np.flatnonzero(self.t >= HORIZON)
        self.th[over], self.w[over] = self.rng.uniform(-np.pi, np.pi, len(over)), self.rng.uniform(-1, 1, len(over))
        self.t[over] = 0
        return next_obs, reward.astype(np.float32)


class Replay:
    """Preallocated; one row is obs | act | reward | next_obs."""
    def __init__(self, capacity):
        self.rows = torch.zeros(capacity, 2 * OBS + ACT + 1)
        self.size = 0

    def add(self, obs, act, rew, next_obs):
        block = torch.from_numpy(np.concatenate([obs, act, rew[:, None], next_obs], 1))
        self.rows[self.size:self.size + len(block)] = block
        self.size += len(block)

    def sample(self, n):
        return self.rows[torch.randint(0, self.size, (n,))].split([OBS, ACT, 1, OBS], 1)


class TwinCritic(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [OBS + ACT, HIDDEN, HIDDEN, 1]
        self.w = nn.ParameterList(torch.empty(2, i, o).uniform_(-1, 1) / math.sqrt(i) for i, o in zip(sizes, sizes[1:]))
        self.b = nn.ParameterList(torch.zeros(2, 1, o) for o in sizes[1:])

    def forward(self, obs, act):
        x = torch.cat([obs, act], 1).expand(2, -1, -1)
        x = F.relu(torch.baddbmm(self.b[0], x, self.w[0]))
        x = F.relu(torch.baddbmm(self.b[1], x, self.w[1]))
        return torch.baddbmm(self.b[2], x, self.w[2])


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        hidden = nn.Linear(OBS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        self.net = nn.Sequential(*hidden, nn.Linear(HIDDEN, 2 * ACT))

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        log_std = log_std.clamp(-5, 2)
        noise = torch.randn_like(mean)
        u = mean + log_std.exp() * noise
        logp = -0.5 * noise.square() - log_std - 0.919 - 2 * (0.693 - u - F.softplus(-2 * u))
        return u.tanh(), logp.sum(-1, keepdim=True)


class Learner:
    def __init__(self):
        self.actor, self.critic, self.target = Actor(), TwinCritic(), TwinCritic()
        self.target.load_state_dict(self.critic.state_dict())
        self.target.requires_grad_(False)
        self.log_alpha = torch.tensor([-1.0], requires_grad=True)
        self.pi_opt = torch.optim.Adam([*self.actor.parameters(), self.log_alpha], lr=LR, fused=True)
        self.q_opt = torch.optim.Adam(self.critic.parameters(), lr=LR, fused=True)
        self.pairs = list(self.target.parameters()), list(self.critic.parameters())

    def update(self, replay):
        obs, act, rew, next_obs = replay.sample(BATCH)
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_act, next_logp = self.actor(next_obs)
            y = rew + GAMMA * (self.target(next_obs, next_act).amin(0) - alpha * next_logp)
        q_loss = (self.critic(obs, act) - y).square().mean()
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()

        self.critic.requires_grad_(False)
        new_act, logp = self.actor(obs)
        pi_loss = (alpha * logp - self.critic(obs, new_act).amin(0)).mean()
        alpha_loss = -(self.log_alpha * (logp.detach() - ACT).mean())
        self.pi_opt.zero_grad()
        (pi_loss + alpha_loss).backward()
        self.pi_opt.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            torch._foreach_lerp_(*self.pairs, TAU)


def interact(env, replay, policy):
    obs = env.obs()
    act = policy(obs)
    next_obs, rew = env.step(act)
    replay.add(obs, act, rew, next_obs)
    return rew.mean()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    env, learner = Pendulums(N_ENVS, rng), Learner()
    replay = Replay((WARMUP + ITERATIONS) * N_ENVS)
    for _ in range(WARMUP):
        interact(env, replay, lambda obs: rng.uniform(-1, 1, (N_ENVS, ACT)).astype(np.float32))

    @torch.inference_mode()
    def policy(obs):
        return learner.actor(torch.from_numpy(obs))[0].numpy()

    rewards = []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        rewards.append(interact(env, replay, policy))
        learner.update(replay)
    seconds = time.perf_counter() - start
    print(f"{RUN_NAME}: mean reward, first and last 50 steps: {np.mean(rewards[:50]):.3f} {np.mean(rewards[-50:]):.3f}")
    print(f"env_steps={ITERATIONS * N_ENVS} updates={ITERATIONS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
