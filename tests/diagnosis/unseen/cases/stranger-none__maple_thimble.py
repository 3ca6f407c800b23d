"""PPO on a hand-written batch of foraging grid worlds with egocentric views."""
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

N, T, ITERS = 128, 32, 60
SIZE, VIEW, FOOD = 12, 5, 14
EPOCHS, MINIBATCH = 2, 1024
GAMMA, LAM, CLIP = 0.97, 0.95, 0.2
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class ForageVec:
    """Toroidal grids; channel 0 food, channel 1 poison. Everything is indexed over the batch."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.rows = np.arange(n)
        self.grid = np.zeros((n, 2, SIZE, SIZE), np.float32)
        self.pos = np.zeros((n, 2), np.int64)
        self.t = self.rng.integers(100, size=n)
        self.window = np.arange(VIEW) - VIEW // 2
        self.reset(np.arange(n))

    def reset(self, ids):
        u = self.rng.random((len(ids), SIZE * SIZE)).argsort(1)
        flat = np.zeros((len(ids), 2, SIZE * SIZE), np.float32)
        np.put_along_axis(flat[:, 0], u[:, :FOOD], 1.0, 1)
        np.put_along_axis(flat[:, 1], u[:, FOOD:2 * FOOD], 1.0, 1)
        self.grid[ids] = flat.reshape(-1, 2, SIZE, SIZE)
        self.pos[ids] = self.rng.integers(SIZE, size=(len(ids), 2))

    def obs(self):
        r = (self.pos[:, 0, None] + self.window) % SIZE
        c = (self.pos[:, 1, None] + self.window) % SIZE
        view = self.grid[self.rows[:, None, None], :, r[:, :, None], c[:, None, :]]
        return view.reshape(self.n, -1)

    def step(self, act):
        self.pos = (self.pos + MOVES[act]) % SIZE
        here = self.grid[self.rows, :, self.pos[:, 0], self.pos[:, 1]]
        rew = here[:, 0] - here[:, 1] - 0.01
        self.grid[self.rows, :, self.pos[:, 0], self.pos[:, 1]] = 0.0
        self.t += 1
        done = self.t >= 100
        if done.any():
            self.reset(np.flatnonzero(done))
            self.t[done] = 0
        return self.obs(), rew, done


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_act):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 192), nn.Tanh(), nn.Linear(192, 192), nn.Tanh())
        self.head = nn.Linear(192, n_act + 1)

    def forward(self, x):
        out = self.head(self.body(x))
        return torch.log_softmax(out[..., :-1], -1), out[..., -1]


def collect(env, net, obs, rng):
    dim = obs.shape[1]
    O = np.zeros((T, N, dim), np.float32)
    A = np.zeros((T, N), np.int64)
    LP, V, R, D = (np.zeros((T, N), np.float32) for _ in range(4))
    with torch.inference_mode():
        for t in range(T):
            logp, v = (x.numpy() for x in net(torch.from_numpy(obs)))
            a = (logp + rng.gumbel(size=logp.shape)).argmax(1)
            O[t], A[t], V[t], LP[t] = obs, a, v, logp[env.rows, a]
            obs, R[t], D[t] = env.step(a)
        boot = net(torch.from_numpy(obs))[1].numpy()
    adv, run = np.zeros((T, N), np.float32), np.zeros(N, np.float32)
    for t in range(T - 1, -1, -1):
        live = 1 - D[t]
        delta = R[t] + GAMMA * live * boot - V[t]
        run = delta + GAMMA * LAM * live * run
        adv[t], boot = run, V[t]
    flat = [x.reshape(T * N, *x.shape[2:]) for x in (O, A, LP, adv, adv + V)]
    return obs, [torch.from_numpy(x) for x in flat], R.mean()


def improve(net, opt, batch):
    for _ in range(EPOCHS):
        for idx in torch.randperm(T * N).split(MINIBATCH):
            o, a, lp, adv, ret = (x[idx] for x in batch)
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            logp, v = net(o)
            ratio = (logp.gather(1, a[:, None]).squeeze(1) - lp).exp()
            pg = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            entropy = -(logp.exp() * logp).sum(1).mean()
            loss = pg + 0.5 * (v - ret).square().mean() - 0.01 * entropy
            opt.zero_grad()
            loss.backward()
            opt.step()


def main():
    torch.manual_seed(31)
    rng = np.random.default_rng(31)
    env = ForageVec(N, seed=31)
    obs = env.obs()
    net = ActorCritic(obs.shape[1], 4)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = time.perf_counter()
    updates = 0
    for it in range(ITERS):
        obs, batch, score = collect(env, net, obs, rng)
        improve(net, opt, batch)
        updates += EPOCHS * -(-T * N // MINIBATCH)
        if it % 15 == 0:
            print(f"iter {it} reward/step {score:.3f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={ITERS * N * T} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
