"""PPO (single file) for dispatching a mechanic in a small workshop."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from gymnasium import spaces
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
MACHINES, PRODUCTS, MAX_ORDERS = 12, 5, 6
LEVELS = np.array([4, 5, 6])  # mode, product, wear


class Workshop(gym.Env):
    """Machines wear out while they work off the orders; the mechanic visits one machine per step."""

    def __init__(self, horizon=100):
        self.horizon = horizon
        machine = spaces.Dict({"mode": spaces.Discrete(4), "product": spaces.Discrete(5), "wear": spaces.Discrete(6)})
        self.observation_space = spaces.Dict({
            "clock": spaces.Box(0.0, 1.0, shape=(1,), dtype=np.float32),
            "machines": spaces.Tuple([machine] * MACHINES),
            "orders": spaces.MultiDiscrete([MAX_ORDERS] * PRODUCTS),
        })
        self.action_space = spaces.Discrete(MACHINES + 1)

    def _observe(self):
        return {
            "clock": np.array([self.t / self.horizon], dtype=np.float32),
            "machines": tuple({"mode": m, "product": p, "wear": w} for m, p, w in self.table.tolist()),
            "orders": self.orders.copy(),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.table = np.zeros((MACHINES, 3), dtype=np.int64)
        self.table[:, 1] = np.arange(MACHINES) % PRODUCTS
        self.orders = self.np_random.integers(0, MAX_ORDERS, size=PRODUCTS)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        draws = self.np_random.random(MACHINES + 1)
        mode, product, wear = self.table.T
        if action < MACHINES:
            wear[action] = 0
            mode[action] = 0
        runs = mode < 3
        wear += (draws[:-1] < 0.12) & runs & (wear < 5)
        mode[wear == 5] = 3
        served = int(product[int(draws[-1] * MACHINES)])
        made = bool(runs[product == served].any()) and self.orders[served] > 0
        self.orders[served] -= made
        lucky = int(draws[0] * PRODUCTS)
        self.orders[lucky] = min(self.orders[lucky] + (self.t % 3 == 0), MAX_ORDERS - 1)
        self.t += 1
        reward = 0.5 * made - 0.05 * float(MACHINES - runs.sum())
        return self._observe(), reward, False, self.t >= self.horizon, {}


class TableObservation(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        sizes = np.concatenate([np.tile(LEVELS, MACHINES), np.full(PRODUCTS, MAX_ORDERS)])
        self.slots = 1 + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.width = 1 + int(sizes.sum())
        self.observation_space = spaces.Box(0.0, 1.0, shape=(self.width,), dtype=np.float32)

    def observation(self, obs):
        shop = self.unwrapped
        flat = np.zeros(self.width, dtype=np.float32)
        flat[0] = shop.t / shop.horizon
        flat[self.slots + np.concatenate([shop.table.ravel(), shop.orders])] = 1.0
        return flat


def make_env():
    return TableObservation(Workshop()) if FIXED else gym.wrappers.FlattenObservation(Workshop())


class Agent(nn.Module):
    def __init__(self, width, actions):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, actions))
        self.critic = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs):
        return Categorical(logits=self.actor(obs), validate_args=False), self.critic(obs).squeeze(-1)


def main(num_envs=8, num_steps=128, iterations=16, epochs=4, minibatch=256, gamma=0.98, lam=0.95):
    torch.set_num_threads(1)
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    envs = gym.vector.SyncVectorEnv([make_env] * num_envs)
    width = envs.single_observation_space.shape[0]
    agent = Agent(width, MACHINES + 1)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    obs_b = torch.zeros(num_steps, num_envs, width)
    act_b = torch.zeros(num_steps, num_envs, dtype=torch.int64)
    logp_b, rew_b, done_b, val_b = (torch.zeros(num_steps, num_envs) for _ in range(4))
    obs = torch.as_tensor(envs.reset(seed=2)[0], dtype=torch.float32)
    env_steps = updates = 0
    start = time.perf_counter()
    for iteration in range(iterations):
        with torch.no_grad():
            for t in range(num_steps):
                dist, value = agent(obs)
                action = dist.sample()
                obs_b[t], act_b[t], logp_b[t], val_b[t] = obs, action, dist.log_prob(action), value
                nxt, reward, term, trunc, _ = envs.step(action.numpy())
                rew_b[t], done_b[t] = torch.as_tensor(reward), torch.as_tensor(term | trunc)
                obs = torch.as_tensor(nxt, dtype=torch.float32)
                env_steps += num_envs
            adv_b, last, following = torch.zeros_like(rew_b), torch.zeros(num_envs), agent(obs)[1]
            for t in reversed(range(num_steps)):
                alive = 1.0 - done_b[t]
                last = rew_b[t] + gamma * following * alive - val_b[t] + gamma * lam * alive * last
                adv_b[t], following = last, val_b[t]
        flat = [x.reshape(-1, *x.shape[2:]) for x in (obs_b, act_b, logp_b, adv_b, adv_b + val_b)]
        for _ in range(epochs):
            for rows in np.split(rng.permutation(num_envs * num_steps), num_envs * num_steps // minibatch):
                o, a, old, adv, ret = (x[rows] for x in flat)
                dist, value = agent(o)
                ratio = (dist.log_prob(a) - old).exp()
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                policy_loss = -torch.min(adv * ratio, adv * ratio.clamp(0.8, 1.2)).mean()
                loss = policy_loss + 0.5 * (value - ret).pow(2).mean() - 0.01 * dist.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                updates += 1
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


main()
