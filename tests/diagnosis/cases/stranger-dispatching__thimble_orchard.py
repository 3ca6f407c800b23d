"""Dreamer-style agent: boats look for a beacon that blinks only now and then, so its place must be remembered."""
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence

FIXED = os.environ.get("FIXED") == "1"
OBS, ACT, DET, STO, HID = 6, 2, 64, 16, 64
N_ENVS, COLLECT, BATCH, LENGTH, HORIZON = 8, 8, 16, 32, 6
PREFILL, UPDATES = 100, 200


class Boats:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.pos, self.vel = np.zeros((n, 2), np.float32), np.zeros((n, 2), np.float32)
        self.goal = rng.uniform(-1, 1, (n, 2)).astype(np.float32)

    def step(self, action):
        self.vel += 0.1 * (action - self.vel)
        self.pos = np.clip(self.pos + 0.2 * self.vel, -1.5, 1.5)
        reward = -np.abs(self.goal - self.pos).sum(1)
        moves = self.rng.random(self.n) < 0.02
        self.goal[moves] = self.rng.uniform(-1, 1, (int(moves.sum()), 2))
        blink = self.rng.random((self.n, 1)) < 0.1
        return np.concatenate([self.pos, self.vel, (self.goal - self.pos) * blink], 1), reward


class Replay:
    def __init__(self):
        rows = PREFILL + UPDATES * COLLECT
        self.obs, self.act = (np.zeros((rows, N_ENVS, k), np.float32) for k in (OBS, ACT))
        self.rew, self.n = np.zeros((rows, N_ENVS), np.float32), 0

    def add(self, obs, act, rew):
        self.obs[self.n], self.act[self.n], self.rew[self.n] = obs, act, rew
        self.n += 1

    def sample(self, rng):
        t = rng.integers(0, self.n - LENGTH, BATCH) + np.arange(LENGTH)[:, None]
        e = np.broadcast_to(rng.integers(0, N_ENVS, BATCH), t.shape)
        return [torch.from_numpy(x[t, e]) for x in (self.obs, self.act, self.rew)]


def mlp(*sizes):
    layers = [m for a, b in zip(sizes[:-1], sizes[1:]) for m in (nn.Linear(a, b), nn.ELU())]
    return nn.Sequential(*layers[:-1])


def moments(stats):
    mean, std = stats.chunk(2, -1)
    return mean, F.softplus(std) + 0.1


class WorldModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = mlp(OBS, HID, HID), mlp(DET + STO, HID, HID, OBS)
        self.inp, self.cell = nn.Linear(STO + ACT, HID), nn.GRUCell(HID, DET)
        self.prior, self.posterior = mlp(DET, HID, 2 * STO), mlp(DET + HID, HID, 2 * STO)
        self.reward = mlp(DET + STO, HID, HID, 1)

    def advance(self, h, z, act):
        return self.cell(F.elu(self.inp(torch.cat([z, act], -1))), h)

    def observe(self, h, z, act, embed):
        h = self.advance(h, z, act)
        post = self.posterior(torch.cat([h, embed], -1))
        mean, std = moments(post)
        return h, mean + std * torch.randn_like(mean), post

    def terms(self, feat, post, obs, rew):
        prior = self.prior(feat[..., :DET])
        recon = -Normal(self.decoder(feat), 1.0).log_prob(obs).sum(-1)
        reward = -Normal(self.reward(feat).squeeze(-1), 1.0).log_prob(rew)
        p, q, still_p, still_q = (Normal(*moments(x)) for x in (prior, post, prior.detach(), post.detach()))
        kl = 0.8 * kl_divergence(still_q, p).sum(-1) + 0.2 * kl_divergence(q, still_p).sum(-1)
        return (recon + reward + kl.clamp(min=1.0)).mean()

    def loss(self, obs, act, rew):
        embed = self.encoder(obs)
        h, z = obs.new_zeros(BATCH, DET), obs.new_zeros(BATCH, STO)
        feats, posts, losses = [], [], []
        for t in range(LENGTH):
            h, z, post = self.observe(h, z, act[t], embed[t])
            feats.append(torch.cat([h, z], -1))
            posts.append(post)
            if not FIXED:
                losses.append(self.terms(feats[t], post, obs[t], rew[t]))
        feats = torch.stack(feats)
        if FIXED:
            losses = [self.terms(feats, torch.stack(posts), obs, rew)]
        return torch.stack(losses).mean(), feats.detach().flatten(0, 1)


def imagine(model, actor, critic, feat):
    feats, acts = [feat], []
    with torch.no_grad():
        for _ in range(HORIZON):
            mean = actor(feats[-1])
            acts.append(mean + 0.3 * torch.randn_like(mean))
            h = model.advance(*feats[-1].split([DET, STO], -1), acts[-1])
            mean, std = moments(model.prior(h))
            feats.append(torch.cat([h, mean + std * torch.randn_like(mean)], -1))
        feats, acts = torch.stack(feats), torch.stack(acts)
        rew, val = model.reward(feats[1:]).squeeze(-1), critic(feats).squeeze(-1)
        target = val.clone()
        for t in reversed(range(HORIZON)):
            target[t] = rew[t] + 0.97 * (0.05 * val[t + 1] + 0.95 * target[t + 1])
    logp = -0.5 * ((acts - actor(feats[:-1])) / 0.3).pow(2).sum(-1)
    return F.mse_loss(critic(feats[:-1]).squeeze(-1), target[:-1]) - (logp * (target - val)[:-1]).mean()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    envs, replay, model, critic = Boats(N_ENVS, rng), Replay(), WorldModel(), mlp(DET + STO, HID, 1)
    actor = nn.Sequential(mlp(DET + STO, HID, ACT), nn.Tanh())
    model_opt = torch.optim.Adam(model.parameters(), 6e-4)
    ac_opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 3e-4)
    for _ in range(PREFILL):
        act = rng.uniform(-1, 1, (N_ENVS, ACT)).astype(np.float32)
        obs, rew = envs.step(act)
        replay.add(obs, act, rew)
    h, z = torch.zeros(N_ENVS, DET), torch.zeros(N_ENVS, STO)
    start = time.perf_counter()
    for updates in range(1, UPDATES + 1):
        with torch.no_grad():
            for _ in range(COLLECT):
                h, z, _post = model.observe(h, z, torch.from_numpy(act), model.encoder(torch.from_numpy(obs)))
                mean = actor(torch.cat([h, z], -1))
                act = (mean + 0.3 * torch.randn_like(mean)).clamp(-1, 1).numpy()
                obs, rew = envs.step(act)
                replay.add(obs, act, rew)
        loss, feats = model.loss(*replay.sample(rng))
        for opt, value in ((model_opt, loss), (ac_opt, imagine(model, actor, critic, feats))):
            opt.zero_grad()
            value.backward()
            opt.step()
    seconds = time.perf_counter() - start
    print(f"env_steps={UPDATES * COLLECT * N_ENVS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
