"""Independent learners that share one network: pickers in an orchard, one row of trees each."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
PICKERS, TREES, WINDOW = 96, 10, 16


class Orchard:
    """Every picker walks along a row of trees whose fruit regrows; basket trips cost time."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.fruit = self.rng.uniform(0, 1, (PICKERS, TREES))
        self.at = self.rng.integers(0, TREES, PICKERS)
        self.load = np.zeros(PICKERS)
        return self._see()

    def _see(self):
        place = np.eye(TREES)[self.at]
        return np.concatenate([self.fruit, place, self.load[:, None]], 1).astype(np.float32)

    def step(self, actions):
        a = np.asarray(actions)
        self.at = np.clip(self.at + (a == 1) - (a == 2), 0, TREES - 1)
        rows = np.flatnonzero(a == 0)
        got = np.zeros(PICKERS)
        got[rows] = self.fruit[rows, self.at[rows]] * (self.load[rows] < 4)
        self.fruit[rows, self.at[rows]] -= got[rows]
        self.load += got
        home = (a == 3) & (self.at == 0)
        reward = np.where(home, self.load, -0.01)
        self.load[home] = 0.0
        self.fruit = np.minimum(1.0, self.fruit + 0.02)
        return self._see(), reward.astype(np.float32)


class PickerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2 * TREES + 1, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        out = self.head(self.trunk(x))
        return out[..., :4], out[..., 4]


class Crew:
    def __init__(self, seed=11):
        torch.manual_seed(seed)
        self.env, self.net = Orchard(seed), PickerNet()
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=5e-4)
        self.obs = self.env.reset()
        self.ledger = [{"income": 0.0, "surprise": 0.0} for _ in range(PICKERS)]
        self.updates = self.steps = 0

    def decide(self):
        with torch.no_grad():
            logits, value = self.net(torch.from_numpy(self.obs))
            action = torch.multinomial(F.softmax(logits, -1), 1).squeeze(1)
            logp = F.log_softmax(logits, -1).gather(1, action.unsqueeze(1)).squeeze(1)
        return action, logp, value

    def unpack(self, action, logp, value):
        if FIXED:
            return action.tolist(), logp.tolist(), value.tolist()
        acts, logps, values = [], [], []
        for i in range(PICKERS):
            acts.append(action[i].item())
            logps.append(logp[i].item())
            values.append(value[i].item())
        return acts, logps, values

    def gather(self):
        obs, act, rew = [], [], []
        for _ in range(WINDOW):
            acts, logps, values = self.unpack(*self.decide())
            nxt, reward = self.env.step(acts)
            for book, lp, v, r in zip(self.ledger, logps, values, reward.tolist()):
                book["income"] += r
                book["surprise"] = 0.99 * book["surprise"] - 0.01 * lp * (r - v)
            obs.append(self.obs)
            act.append(acts)
            rew.append(reward)
            self.obs = nxt
            self.steps += PICKERS
        return np.stack(obs), np.array(act), np.stack(rew)

    def learn(self, obs, act, rew):
        with torch.no_grad():
            ret = self.net(torch.from_numpy(self.obs))[1].numpy()
        targets = np.empty_like(rew)
        for t in range(WINDOW - 1, -1, -1):
            ret = rew[t] + 0.97 * ret
            targets[t] = ret
        logits, value = self.net(torch.from_numpy(obs))
        logp = F.log_softmax(logits, -1)
        adv = torch.from_numpy(targets) - value
        taken = logp.gather(-1, torch.from_numpy(act).unsqueeze(-1)).squeeze(-1)
        loss = 0.5 * adv.pow(2).mean() - (taken * adv.detach()).mean() + 0.01 * (logp.exp() * logp).sum(-1).mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        self.updates += 1


def main():
    torch.set_num_threads(1)
    crew = Crew()
    begin = time.perf_counter()
    for _ in range(340):
        crew.learn(*crew.gather())
    print(f"env_steps={crew.steps} updates={crew.updates} seconds={time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
