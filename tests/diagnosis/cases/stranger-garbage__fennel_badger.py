"""Courier dispatch on a city network: plain-Python simulator, policy gradient with a learned baseline."""
import gc
import os
import random
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SITES, COURIERS, CHOICES, HORIZON = 360, 4, 5, 60
EPISODES, PASSES, GAMMA = 40, 4, 0.95
OBS = CHOICES * 4 + 3
PAGE = os.sysconf("SC_PAGE_SIZE")


class Route:
    """Precomputed connection between two sites."""
    def __init__(self, origin, target, km, stops):
        self.origin, self.target = origin, target
        self.km, self.stops = km, stops


class City:
    def __init__(self, rng):
        self.where = [(rng.uniform(0, 12), rng.uniform(0, 12)) for _ in range(SITES)]
        self.routes = {}
        for a, (ax, ay) in enumerate(self.where):
            for b, (bx, by) in enumerate(self.where):
                km = abs(ax - bx) + abs(ay - by)
                stops = [a, (a + b) // 2, b] if km > 8 else [a, b]
                self.routes[a, b] = Route(a, b, km, stops)


class Order:
    def __init__(self, pickup, drop, born):
        self.pickup, self.drop, self.born = pickup, drop, born


class Dispatch:
    """One decision per step: which of the offered orders the next free courier takes."""
    def __init__(self, city, rng):
        self.city, self.rng = city, rng

    def reset(self):
        self.clock, self.steps = 0.0, 0
        self.couriers = [[0.0, self.rng.randrange(SITES)] for _ in range(COURIERS)]
        self.offers = [self.draw() for _ in range(CHOICES)]
        return self.observe()

    def draw(self):
        return Order(self.rng.randrange(SITES), self.rng.randrange(SITES), self.clock)

    def observe(self):
        self.couriers.sort()
        free_at, site = self.couriers[0]
        obs = [self.clock / 60, free_at / 60, self.couriers[-1][0] / 60]
        for order in self.offers:
            there = self.city.routes[site, order.pickup]
            trip = self.city.routes[order.pickup, order.drop]
            obs += (there.km / 24, trip.km / 24, len(trip.stops) - 2.0, (self.clock - order.born) / 60)
        return obs

    def step(self, choice):
        order, courier = self.offers[choice], self.couriers[0]
        approach = self.city.routes[courier[1], order.pickup]
        trip = self.city.routes[order.pickup, order.drop]
        self.clock = max(self.clock, courier[0])
        minutes = 2.4 * (approach.km + trip.km) + 1.5 * len(trip.stops)
        courier[:] = self.clock + minutes, order.drop
        self.offers[choice] = self.draw()
        late = sum(max(self.clock - other.born - 30.0, 0.0) for other in self.offers)
        reward = 0.4 * trip.km - 0.06 * minutes - 0.002 * late
        self.steps += 1
        return self.observe(), reward, self.steps >= HORIZON


def resident_mb():
    if not FIXED:
        gc.collect()
    with open("/proc/self/statm") as handle:
        return int(handle.read().split()[1]) * PAGE / 2**20


class Ledger:
    """One row per episode, with the memory in use, to be printed or plotted."""
    def __init__(self):
        self.rows = []

    def close_episode(self, rewards, loss):
        self.rows.append((len(self.rows), sum(rewards), len(rewards), loss, resident_mb()))


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(OBS, 64), nn.Tanh(), nn.Linear(64, CHOICES))
        self.value = nn.Sequential(nn.Linear(OBS, 64), nn.Tanh(), nn.Linear(64, 1))
        self.optim = torch.optim.Adam([*self.policy.parameters(), *self.value.parameters()], lr=1e-3)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs):
        return int(torch.multinomial(self.policy(torch.tensor(obs)).softmax(-1), 1))

    def learn(self, obs, actions, rewards):
        returns, ret = [], 0.0
        for reward in reversed(rewards):
            ret = reward + GAMMA * ret
            returns.append(ret)
        obs, actions, returns = torch.tensor(obs), torch.tensor(actions), torch.tensor(returns[::-1])
        for _ in range(PASSES):
            value = self.value(obs).squeeze(-1)
            logp = self.policy(obs).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
            loss = (value - returns).pow(2).mean() - (logp * (returns - value.detach())).mean() / PASSES
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            self.updates += 1
        return loss.item()


def run_episode(env, agent):
    seen, actions, rewards, done = [env.reset()], [], [], False
    while not done:
        actions.append(agent.act(seen[-1]))
        obs, reward, done = env.step(actions[-1])
        seen.append(obs)
        rewards.append(reward)
    return rewards, agent.learn(seen[:-1], actions, rewards)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    rng = random.Random(5)
    env, agent, ledger = Dispatch(City(rng), rng), Agent(), Ledger()

    start = time.perf_counter()
    for _ in range(EPISODES):
        rewards, loss = run_episode(env, agent)
        ledger.close_episode(rewards, loss)
    seconds = time.perf_counter() - start

    print("episode=%d return=%.2f length=%d loss=%.3f rss=%.0fMB" % ledger.rows[-1])
    print(f"env_steps={sum(row[2] for row in ledger.rows)} updates={agent.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
