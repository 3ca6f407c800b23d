"""Two-team self-play with recurrent agents and an episode replay (mixing by a monotone network)."""
import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

SEED, GAMMA, HIDDEN = 37, 0.97, 96
COURTS, PER_TEAM, LENGTH, LANES, ACTIONS = 64, 3, 24, 6, 3
EPISODES, UPDATES_PER_EPISODE = 20, 3
BATCH, CAPACITY = 48, 512
OBS, STATE = 3 * LANES + PER_TEAM, 3 * LANES

class LaneBall:
    """Two teams slide along six lanes; a ball falls into one lane and the team with more players there scores."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def _draw(self):
        self.ball = self.rng.integers(0, LANES, COURTS)
        self.fuse = self.rng.integers(3, 6, COURTS)

    def reset(self):
        self.lane = self.rng.integers(0, LANES, (2, COURTS, PER_TEAM))
        self._draw()
        return self.observe()

    def observe(self):
        eye = np.eye(LANES, dtype=np.float32)
        counts = eye[self.lane].sum(2) / PER_TEAM
        ball = eye[self.ball] / self.fuse[:, None].astype(np.float32)
        state = np.stack([np.concatenate([ball, counts[t], counts[1 - t]], 1) for t in (0, 1)])
        own = np.broadcast_to(np.stack([ball, ball])[:, :, None], (2, COURTS, PER_TEAM, LANES))
        team = np.broadcast_to(counts[:, :, None], (2, COURTS, PER_TEAM, LANES))
        who = np.broadcast_to(np.eye(PER_TEAM, dtype=np.float32), (2, COURTS, PER_TEAM, PER_TEAM))
        obs = np.concatenate([own, eye[self.lane], team, who], -1)
        return torch.from_numpy(obs), torch.from_numpy(state.astype(np.float32))

    def step(self, actions):
        self.lane = np.clip(self.lane + actions - 1, 0, LANES - 1)
        self.fuse = self.fuse - 1
        there = (self.lane == self.ball[None, :, None]).sum(-1)
        lands = self.fuse == 0
        reward = np.sign(there[0] - there[1]) * lands
        fresh = self.rng.integers(0, LANES, COURTS), self.rng.integers(3, 6, COURTS)
        self.ball = np.where(lands, fresh[0], self.ball)
        self.fuse = np.where(lands, fresh[1], self.fuse)
        obs, state = self.observe()
        return obs, state, np.stack([reward, -reward]).astype(np.float32)

class AgentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(OBS, HIDDEN)
        self.core = nn.GRU(HIDDEN, HIDDEN)
        self.q = nn.Linear(HIDDEN, ACTIONS)

    def forward(self, obs, memory=None):
        """obs: (steps, rows, OBS)"""
        z, memory = self.core(torch.relu(self.enter(obs)), memory)
        return self.q(z), memory

class Mixer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.w1, self.b1 = nn.Linear(STATE, PER_TEAM * width), nn.Linear(STATE, width)
        self.w2 = nn.Linear(STATE, width)
        self.b2 = nn.Sequential(nn.Linear(STATE, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, qs, state):
        w1 = self.w1(state).abs().view(*qs.shape[:-1], PER_TEAM, self.width)
        hidden = F.elu((qs.unsqueeze(-1) * w1).sum(-2) + self.b1(state))
        return (hidden * self.w2(state).abs()).sum(-1) + self.b2(state).squeeze(-1)

class EpisodeReplay:
    """Whole episodes, time first: one row per team and court."""

    def __init__(self):
        self.obs = torch.zeros(LENGTH, CAPACITY, PER_TEAM, OBS)
        self.state = torch.zeros(LENGTH, CAPACITY, STATE)
        self.act = torch.zeros(LENGTH, CAPACITY, PER_TEAM, dtype=torch.long)
        self.rew = torch.zeros(LENGTH, CAPACITY)
        self.head = self.size = 0

    def rows(self):
        rows = slice(self.head, self.head + 2 * COURTS)
        self.head = (self.head + 2 * COURTS) % CAPACITY
        self.size = min(self.size + 2 * COURTS, CAPACITY)
        return rows

    def sample(self, n):
        index = torch.randint(0, self.size, (n,))
        return self.obs[:, index], self.state[:, index], self.act[:, index], self.rew[:, index]

def play(env, net, replay, epsilon):
    obs, state = env.reset()
    memory, rows = None, replay.rows()
    for t in range(LENGTH):
        with torch.no_grad():
            q, memory = net(obs.view(1, -1, OBS), memory)
        greedy = q.view(2, COURTS, PER_TEAM, ACTIONS).argmax(-1)
        act = torch.where(torch.rand(greedy.shape) < epsilon, torch.randint_like(greedy, ACTIONS), greedy)
        replay.obs[t, rows], replay.state[t, rows] = obs.flatten(0, 1), state.flatten(0, 1)
        replay.act[t, rows] = act.flatten(0, 1)
        obs, state, reward = env.step(act.numpy())
        replay.rew[t, rows] = torch.from_numpy(reward).flatten()

def learn(nets, targets, optim, replay):
    (net, mixer), (target_net, target_mixer) = nets, targets
    obs, state, act, rew = replay.sample(BATCH)
    flat = obs.flatten(1, 2)
    q = net(flat)[0].view(LENGTH, BATCH, PER_TEAM, ACTIONS)
    total = mixer(q.gather(-1, act.unsqueeze(-1)).squeeze(-1), state)
    with torch.no_grad():
        ahead = target_net(flat)[0].view(LENGTH, BATCH, PER_TEAM, ACTIONS)
        ahead = ahead.gather(-1, q.argmax(-1, keepdim=True)).squeeze(-1)
        goal = rew[:-1] + GAMMA * target_mixer(ahead[1:], state[1:])
    loss = F.mse_loss(total[:-1], goal)
    optim.zero_grad()
    loss.backward()
    optim.step()
    return loss.item()

def main():
    torch.manual_seed(SEED)
    env, replay = LaneBall(SEED), EpisodeReplay()
    nets = AgentNet(), Mixer()
    targets = copy.deepcopy(nets)
    optim = torch.optim.Adam([p for net in nets for p in net.parameters()], lr=1e-3)
    updates = 0
    start = time.perf_counter()
    for episode in range(EPISODES):
        play(env, nets[0], replay, max(0.05, 1.0 - episode / 12))
        for _ in range(UPDATES_PER_EPISODE):
            loss = learn(nets, targets, optim, replay)
            updates += 1
        if (episode + 1) % 5 == 0:
            for net, target in zip(nets, targets):
                target.load_state_dict(net.state_dict())
            print(f"episode {episode + 1}: loss {loss:.4f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={EPISODES * COURTS * LENGTH} updates={updates} seconds={seconds:.3f}")

if __name__ == "__main__":
    main()
