"""PPO for a hover sled on three skids: small rigid-body simulator with contact, friction and shaped reward."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

if FIXED:
    from math import cos, hypot, sin, tanh

    def clip(value, low, high):
        return low if value < low else high if value > high else value
else:
    from numpy import clip, cos, hypot, sin, tanh

ROLLOUT, ROLLOUTS, EPOCHS, MINIBATCH = 512, 20, 4, 64
GAMMA, LAM, STD = 0.98, 0.95, 0.4
SKIDS = ((0.9, 0.0), (-0.6, 0.5), (-0.6, -0.5))


class Sled(gym.Env):
    """Bring the sled to the origin; actions are forward thrust and yaw torque."""

    SUBSTEPS, DT, HORIZON = 8, 0.02, 200
    observation_space = gym.spaces.Box(-np.inf, np.inf, (8,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.y = self.np_random.uniform(-4.0, 4.0, 2).tolist()
        self.heading = float(self.np_random.uniform(-3.1, 3.1))
        self.vx = self.vy = self.omega = 0.0
        self.load = [1.0, 1.0, 1.0]
        self.t = 0
        return self.observe(), {}

    def observe(self):
        c, s = cos(self.heading), sin(self.heading)
        ahead, side = -c * self.x - s * self.y, s * self.x - c * self.y
        forward, drift = c * self.vx + s * self.vy, c * self.vy - s * self.vx
        tilt = self.load[1] - self.load[2]
        return np.array([ahead, side, forward, drift, self.omega, c, s, tilt], np.float32)

    def slip(self, arm_x, arm_y, c, s):
        """Velocity of a skid over the ground, along and across the sled."""
        px, py = c * arm_x - s * arm_y, s * arm_x + c * arm_y
        ux, uy = self.vx - self.omega * py, self.vy + self.omega * px
        return c * ux + s * uy, c * uy - s * ux

    def friction(self, index, along, across):
        speed = hypot(along, across)
        grip = 1.6 * self.load[index] * tanh(4.0 * speed) / (speed + 1e-3)
        return clip(-0.25 * grip * along, -2.0, 2.0), clip(-grip * across, -4.0, 4.0)

    def shift_load(self, thrust):
        lean = clip(0.15 * self.omega * hypot(self.vx, self.vy), -0.4, 0.4)
        pitch = clip(0.1 * thrust, -0.3, 0.3)
        targets = (1.0 - pitch, 1.0 + 0.5 * pitch + lean, 1.0 + 0.5 * pitch - lean)
        self.load = [clip(0.7 * old + 0.3 * new, 0.2, 1.8) for old, new in zip(self.load, targets)]

    def substep(self, thrust, torque):
        c, s = cos(self.heading), sin(self.heading)
        self.shift_load(thrust)
        push, side, spin = 3.0 * thrust, 0.0, 1.5 * torque
        for index, (arm_x, arm_y) in enumerate(SKIDS):
            fx, fy = self.friction(index, *self.slip(arm_x, arm_y, c, s))
            push, side, spin = push + fx, side + fy, spin + arm_x * fy - arm_y * fx
        self.vx = clip(self.vx + self.DT * (c * push - s * side), -6.0, 6.0)
        self.vy = clip(self.vy + self.DT * (s * push + c * side), -6.0, 6.0)
        self.omega = clip(self.omega + self.DT * spin, -4.0, 4.0)
        self.x, self.y = self.x + self.DT * self.vx, self.y + self.DT * self.vy
        self.heading = self.heading + self.DT * self.omega

    def potential(self):
        return -hypot(self.x, self.y) - 0.1 * hypot(self.vx, self.vy)

    def step(self, action):
        thrust, torque = (float(clip(a, -1.0, 1.0)) for a in action.tolist())
        before = self.potential()
        for _ in range(self.SUBSTEPS):
            self.substep(thrust, torque)
        self.t += 1
        reward = GAMMA * self.potential() - before - 0.01 * thrust * thrust
        home = bool(hypot(self.x, self.y) < 0.3)
        return self.observe(), float(reward) + 2.0 * home, home, self.t >= self.HORIZON, {}


def mlp(out):
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))


def log_prob(mean, action):
    return -((action - mean) / STD).pow(2).sum(-1) / 2


@torch.no_grad()
def collect(env, obs, pi, value):
    seen, acts = torch.empty(ROLLOUT + 1, 8), torch.empty(ROLLOUT, 2)
    rewards, alive = np.empty(ROLLOUT, np.float32), np.empty(ROLLOUT, np.float32)
    for t in range(ROLLOUT):
        seen[t] = torch.from_numpy(obs)
        acts[t] = pi(seen[t]) + STD * torch.randn(2)
        obs, rewards[t], home, late, _ = env.step(acts[t].numpy())
        alive[t] = not (home or late)
        if home or late:
            obs, _ = env.reset()
    seen[ROLLOUT] = torch.from_numpy(obs)
    values = value(seen).squeeze(-1).numpy()
    adv, running = np.empty(ROLLOUT, np.float32), 0.0
    for t in reversed(range(ROLLOUT)):
        delta = rewards[t] + GAMMA * alive[t] * values[t + 1] - values[t]
        adv[t] = running = delta + GAMMA * LAM * alive[t] * running
    adv, seen = torch.from_numpy(adv), seen[:-1]
    target = adv + torch.from_numpy(values[:-1])
    return obs, (seen, acts, log_prob(pi(seen), acts), (adv - adv.mean()) / adv.std(), target), rewards.mean()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(6)
    env, pi, value = Sled(), mlp(2), mlp(1)
    optim = torch.optim.Adam([*pi.parameters(), *value.parameters()], lr=3e-4)
    obs, updates = env.reset(seed=6)[0], 0

    start = time.perf_counter()
    for _ in range(ROLLOUTS):
        obs, batch, reward = collect(env, obs, pi, value)
        for index in torch.cat([torch.randperm(ROLLOUT) for _ in range(EPOCHS)]).split(MINIBATCH):
            seen, acts, logp, adv, target = (x[index] for x in batch)
            ratio = (log_prob(pi(seen), acts) - logp).exp()
            gain = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            optim.zero_grad()
            (0.5 * (value(seen).squeeze(-1) - target).pow(2).mean() - gain).backward()
            optim.step()
            updates += 1
    seconds = time.perf_counter() - start
    print(f"mean_reward={reward:.4f}")
    print(f"env_steps={ROLLOUT * ROLLOUTS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
