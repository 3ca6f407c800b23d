"""Actor-critic on sleds that slide over ice, simulated as tensors."""
import os
import time

import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"


class Args:
    sleds, horizon, rounds, epochs, seed = 24, 20, 120, 3, 8


class SledField:
    def __init__(self, args):
        self.n = args.sleds
        self.gen = torch.Generator().manual_seed(args.seed)
        self.pos, self.vel, self.flag = torch.zeros(3, self.n, 2, dtype=torch.float64)
        self.age = torch.zeros(self.n, dtype=torch.int64)
        self.place(torch.ones(self.n, dtype=torch.bool))

    def place(self, mask):
        fresh, keep = torch.rand((2, self.n, 2), generator=self.gen, dtype=torch.float64) * 2 - 1, ~mask[:, None]
        self.pos = self.pos * keep + fresh[0] * ~keep
        self.flag = self.flag * keep + fresh[1] * ~keep
        self.vel, self.age = self.vel * keep, self.age * ~mask

    def view(self):
        if FIXED:
            return torch.cat([self.pos, self.vel, self.flag - self.pos], dim=1).float()
        rows = [torch.cat([self.pos[i], self.vel[i], self.flag[i] - self.pos[i]]).float() for i in range(self.n)]
        return torch.stack(rows)

    def drag(self):
        speed = self.vel.norm(dim=1, keepdim=True)
        return -0.05 * self.vel - 0.02 * speed * self.vel

    def bounce(self):
        out = self.pos.abs() > 2.0
        self.vel = torch.where(out, -0.5 * self.vel, self.vel)
        self.pos = self.pos.clamp(-2.0, 2.0)

    def score(self):
        dist = (self.flag - self.pos).norm(dim=1)
        return -dist - 0.01 * self.vel.square().sum(1), dist < 0.05

    def step(self, push):
        for _ in range(3):
            self.vel = self.vel + 0.05 * (push.double() + self.drag())
            self.pos = self.pos + 0.05 * self.vel
            self.bounce()
        reward, there = self.score()
        self.age += 1
        done = there | (self.age >= 120)
        self.place(done)
        return self.view(), reward.float(), done.float()


class Driver(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.mu, self.v = nn.Linear(64, 2), nn.Linear(64, 1)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def forward(self, x):
        h = self.trunk(x)
        return torch.distributions.Normal(self.mu(h), self.log_std.exp(), validate_args=False), self.v(h).squeeze(-1)


class Trainer:
    def __init__(self, args):
        self.args, self.field, self.driver = args, SledField(args), Driver()
        self.opt = torch.optim.RMSprop(self.driver.parameters(), 7e-4)
        self.obs, self.updates = self.field.view(), 0

    def drive(self):
        track = []
        for _ in range(self.args.horizon):
            with torch.no_grad():
                act = self.driver(self.obs)[0].sample()
            nxt, rew, done = self.field.step(act.clamp(-1, 1))
            track.append((self.obs, act, rew, done))
            self.obs = nxt
        return [torch.stack(x) for x in zip(*track)]

    def targets(self, rew, done):
        with torch.no_grad():
            run, out = self.driver(self.obs)[1], []
            for r, d in zip(rew.flip(0), done.flip(0)):
                out.append(run := r + 0.97 * run * (1 - d))
        return torch.stack(out[::-1])

    def improve(self, obs, act, goal):
        dist, value = self.driver(obs)
        adv = goal - value
        loss = -(dist.log_prob(act).sum(-1) * adv.detach()).mean() + 0.5 * adv.square().mean() - 0.001 * dist.entropy().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1


def main():
    torch.set_num_threads(1)
    torch.manual_seed(Args.seed)
    args, trainer = Args(), Trainer(Args())
    start = time.perf_counter()
    for _ in range(args.rounds):
        obs, act, rew, done = trainer.drive()
        goal = trainer.targets(rew, done)
        for _ in range(args.epochs):
            trainer.improve(obs, act, goal)
    seconds = time.perf_counter() - start
    print(f"env_steps={args.rounds * args.horizon * args.sleds} updates={trainer.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
