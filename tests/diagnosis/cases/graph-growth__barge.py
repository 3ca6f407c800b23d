"""DDPG for a barge in a current, with the mean losses so far shown in the status line."""

import os
import time

import numpy as np
import torch

FIXED = os.environ.get("FIXED") == "1"


class Barge:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.x, self.v, self.flow, self.t = self.rng.uniform(-2, 2), 0.0, self.rng.uniform(-0.3, 0.3), 0
        return np.array([self.x, self.v, self.flow], np.float32)

    def step(self, push):
        self.v = 0.9 * self.v + 0.1 * (float(push) + self.flow)
        self.x += 0.2 * self.v
        self.t += 1
        return np.array([self.x, self.v, self.flow], np.float32), -abs(self.x) - 0.05 * float(push) ** 2, self.t >= 80


def dense(n_in, n_out, *tail):
    return torch.nn.Sequential(torch.nn.Linear(n_in, 48), torch.nn.ReLU(), torch.nn.Linear(48, n_out), *tail)


def mean(losses):
    average = sum(losses) / len(losses)
    return average if isinstance(average, float) else average.item()


class Tracker:
    def __init__(self):
        self.critic, self.actor = [], []

    def record(self, critic_loss, actor_loss):
        if FIXED:
            critic_loss, actor_loss = critic_loss.item(), actor_loss.item()
        self.critic.append(critic_loss)
        self.actor.append(actor_loss)

    def status(self):
        critic, actor = (mean(losses) for losses in (self.critic, self.actor))
        return f"critic {critic:.3f} actor {actor:.3f}"


class DDPG:
    def __init__(self):
        self.actor, self.actor_slow = dense(3, 1, torch.nn.Tanh()), dense(3, 1, torch.nn.Tanh())
        self.critic, self.critic_slow = dense(4, 1), dense(4, 1)
        self.actor_slow.load_state_dict(self.actor.state_dict())
        self.critic_slow.load_state_dict(self.critic.state_dict())
        self.opt_actor = torch.optim.Adam(self.actor.parameters(), 1e-3)
        self.opt_critic = torch.optim.Adam(self.critic.parameters(), 1e-3)

    def update(self, s, a, r, s2, d):
        with torch.no_grad():
            y = r + 0.97 * (1 - d) * self.critic_slow(torch.cat([s2, self.actor_slow(s2)], 1))
        critic_loss = (self.critic(torch.cat([s, a], 1)) - y).square().mean()
        self.opt_critic.zero_grad()
        critic_loss.backward()
        self.opt_critic.step()
        actor_loss = -self.critic(torch.cat([s, self.actor(s)], 1)).mean()
        self.opt_actor.zero_grad()
        actor_loss.backward()
        self.opt_actor.step()
        with torch.no_grad():
            pairs = ((self.actor, self.actor_slow), (self.critic, self.critic_slow))
            for net, slow in pairs:
                torch._foreach_lerp_(list(slow.parameters()), list(net.parameters()), 0.01)
        return critic_loss, actor_loss


def main(steps=3300, warmup=100):
    torch.set_num_threads(1)
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    t0 = time.time()
    barge, agent, tracker = Barge(2), DDPG(), Tracker()
    store = np.zeros((steps, 9), np.float32)
    s = barge.reset()
    updates, line = 0, ""
    for t in range(steps):
        with torch.no_grad():
            a = float(agent.actor(torch.from_numpy(s))) + rng.normal(0, 0.1)
        s2, r, d = barge.step(np.clip(a, -1, 1))
        store[t] = [*s, a, r, *s2, d]
        s = barge.reset() if d else s2
        if t < warmup:
            continue
        batch = torch.from_numpy(store[rng.integers(0, t + 1, 64)])
        tracker.record(*agent.update(batch[:, :3], batch[:, 3:4], batch[:, 4:5], batch[:, 5:8], batch[:, 8:]))
        updates += 1
        if t % 4 == 0:
            line = tracker.status()
    print(line)
    print(f"env_steps={steps} updates={updates} seconds={time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
