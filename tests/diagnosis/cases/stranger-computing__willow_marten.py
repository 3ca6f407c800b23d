"""Eco-driving of a truck fleet: actor-critic on logged trips plus fresh ones, n-step targets over short slices."""
import copy
import os
import time

import numpy as np
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.data import LazyTensorStorage, SliceSampler, TensorDictReplayBuffer

FIXED = os.environ.get("FIXED") == "1"

OBS, ACT, TRIP, GAMMA = 6, 2, 80, 0.97
LOG_TRUCKS, LOG_TRIPS, SLICES, SLICE_LEN = 2000, 10, 32, 8
FLEET, ROUNDS, UPDATES_PER_ROUND = 10, 25, 40


class Fleet:
    """Independent trucks on hilly roads, simulated side by side in NumPy."""

    def __init__(self, trucks, seed):
        self.rng, self.trucks = np.random.default_rng(seed), trucks

    def reset(self):
        n = self.trucks
        self.speed = self.rng.uniform(14.0, 24.0, n)
        self.mass = self.rng.uniform(18.0, 40.0, n)
        self.phase = self.rng.uniform(0.0, 2 * np.pi, (2, n))
        self.brake_heat, self.position = np.zeros(n), np.zeros(n)
        return self.observe()

    def grade(self, ahead):
        x = (self.position + ahead) / 400.0
        return 0.03 * np.sin(x + self.phase[0]) + 0.02 * np.sin(2.3 * x + self.phase[1])

    def observe(self):
        slopes = [20.0 * self.grade(ahead) for ahead in (0.0, 100.0, 300.0)]
        rows = (self.speed / 25.0, self.mass / 40.0, self.brake_heat, *slopes)
        return np.stack(rows, axis=-1).astype(np.float32)

    def step(self, action):
        throttle, brake = np.clip(0.5 + 0.5 * action[:, 0], 0.0, 1.0), np.clip(action[:, 1], 0.0, 1.0)
        force = 60.0 * throttle - 90.0 * brake * (1.0 - 0.5 * self.brake_heat)
        force = force - 0.02 * self.speed**2 - 0.06 * self.mass
        self.speed = np.clip(self.speed + force / self.mass - 9.81 * self.grade(0.0), 1.0, 33.0)
        self.position = self.position + self.speed
        self.brake_heat = np.clip(0.93 * self.brake_heat + 0.1 * brake, 0.0, 1.0)
        reward = 1.0 - np.abs(self.speed - 22.0) / 10.0 - 0.6 * throttle - 0.5 * self.brake_heat
        return self.observe(), reward.astype(np.float32)


def run_trips(fleet, policy, first_id):
    obs, actions, rewards = [fleet.reset()], [], []
    for _ in range(TRIP):
        actions.append(policy(obs[-1]))
        for rows, new in zip((obs, rewards), fleet.step(actions[-1])):
            rows.append(new)

    def by_truck(rows):
        block = np.swapaxes(np.stack(rows), 0, 1)
        return torch.from_numpy(np.ascontiguousarray(block)).reshape(fleet.trucks * TRIP, -1)

    done = torch.zeros(fleet.trucks, TRIP, 1, dtype=torch.bool)
    done[:, -1] = True
    following = {"observation": by_truck(obs[1:]), "reward": by_truck(rewards), "done": done.reshape(-1, 1)}
    ids = torch.arange(first_id, first_id + fleet.trucks).repeat_interleave(TRIP)
    entries = {"observation": by_truck(obs[:-1]), "action": by_truck(actions), "trip": ids, "next": following}
    return TensorDict(entries, batch_size=[fleet.trucks * TRIP])


def build_replay(rng):
    sampler = SliceSampler(slice_len=SLICE_LEN, traj_key="trip", cache_values=FIXED)
    size = LOG_TRUCKS * LOG_TRIPS * TRIP + FLEET * ROUNDS * TRIP
    storage = LazyTensorStorage(size)
    replay = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=SLICES * SLICE_LEN)
    fleet = Fleet(LOG_TRUCKS, seed=7)
    driver = lambda obs: rng.uniform(-1.0, 1.0, (len(obs), ACT)).astype(np.float32)
    for k in range(LOG_TRIPS):
        replay.extend(run_trips(fleet, driver, first_id=k * LOG_TRUCKS))
    return replay


def mlp(inp, out):
    return nn.Sequential(nn.Linear(inp, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, out))


class Agent:
    def __init__(self):
        self.actor, self.critic = nn.Sequential(mlp(OBS, ACT), nn.Tanh()), mlp(OBS + ACT, 1)
        self.target_actor, self.target_critic = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.fast = [*self.actor.parameters(), *self.critic.parameters()]
        self.slow = [*self.target_actor.parameters(), *self.target_critic.parameters()]
        self.updates = 0

    @torch.no_grad()
    def act(self, obs):
        action = self.actor(torch.from_numpy(obs))
        return (action + 0.1 * torch.randn_like(action)).clamp_(-1.0, 1.0).numpy()

    @torch.no_grad()
    def returns(self, batch):
        last, out = batch["next", "observation"][:, -1], []
        ret = self.target_critic(torch.cat((last, self.target_actor(last)), -1))
        for reward in reversed(batch["next", "reward"].unbind(1)):
            ret = reward + GAMMA * ret
            out.append(ret)
        return torch.stack(out[::-1], 1)

    def update(self, replay):
        batch = replay.sample().reshape(SLICES, SLICE_LEN)
        obs, target = batch["observation"], self.returns(batch)
        critic_loss = (self.critic(torch.cat((obs, batch["action"]), -1)) - target).pow(2).mean()
        self.descend(self.critic_opt, critic_loss)
        if self.updates % 2 == 0:
            self.descend(self.actor_opt, -self.critic(torch.cat((obs, self.actor(obs)), -1)).mean())
        with torch.no_grad():
            for slow, fast in zip(self.slow, self.fast):
                slow.lerp_(fast, 0.01)
        self.updates += 1
        return critic_loss.item()

    def descend(self, optim, loss):
        optim.zero_grad()
        loss.backward()
        optim.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    replay = build_replay(np.random.default_rng(2))
    agent, fleet = Agent(), Fleet(FLEET, seed=3)
    next_id, env_steps = LOG_TRUCKS * LOG_TRIPS, 0

    start = time.perf_counter()
    for _ in range(ROUNDS):
        trips = run_trips(fleet, agent.act, next_id)
        next_id, env_steps = next_id + FLEET, env_steps + trips.numel()
        replay.extend(trips)
        losses = [agent.update(replay) for _ in range(UPDATES_PER_ROUND)]
    seconds = time.perf_counter() - start
    print(f"critic_loss={np.mean(losses):.4f} reward={trips['next', 'reward'].mean().item():.4f}")
    print(f"env_steps={env_steps} updates={agent.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
