"""Policy gradient with a GRU on a recall task: a cue is shown once and asked for much later."""
import os
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"

SEED = 17
CUES = 4
BATCH = 24
LENGTH = 60
HIDDEN = 64
EPISODES = 30


class Recall:
    """A batch of streams: the cue at the first step, noise afterwards, and now and then a question."""

    OBS = CUES + 3

    def __init__(self, batch, seed):
        self.batch = batch
        self.rng = np.random.default_rng(seed)

    def _observe(self):
        obs = np.zeros((self.batch, self.OBS), np.float32)
        if self.t == 0:
            obs[np.arange(self.batch), self.cue] = 1.0
        obs[:, CUES] = self.asked
        obs[:, CUES + 1:] = self.rng.normal(0, 0.3, (self.batch, 2))
        return torch.from_numpy(obs)

    def reset(self):
        self.t = 0
        self.cue = self.rng.integers(0, CUES, self.batch)
        self.asked = np.zeros(self.batch, bool)
        return self._observe()

    def step(self, actions):
        reward = np.where(self.asked, np.where(actions == self.cue, 1.0, -0.3), 0.0)
        self.t += 1
        self.asked = self.rng.random(self.batch) < 0.2
        return self._observe(), reward.astype(np.float32), self.t >= LENGTH


class RecurrentPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(Recall.OBS, HIDDEN)
        self.core = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.pi = nn.Linear(HIDDEN, CUES)
        self.v = nn.Linear(HIDDEN, 1)

    def forward(self, obs, state=None):
        z, state = self.core(torch.relu(self.enter(obs)), state)
        return self.pi(z), self.v(z).squeeze(-1), state


class Player:
    """Plays with the policy's memory of the running episode."""

    def __init__(self, policy):
        self.policy = policy

    def begin(self):
        self.seen = []
        self.state = None

    @torch.no_grad()
    def act(self, obs):
        self.seen.append(obs)
        if FIXED:
            logits, _, self.state = self.policy(obs.unsqueeze(1), self.state)
        else:
            logits, _, _ = self.policy(torch.stack(self.seen, dim=1))
        return torch.multinomial(logits[:, -1].softmax(-1), 1).squeeze(-1)


def collect(env, player):
    player.begin()
    obs = env.reset()
    acts, rewards, done = [], [], False
    while not done:
        action = player.act(obs)
        acts.append(action)
        obs, reward, done = env.step(action.numpy())
        rewards.append(reward)
    return torch.stack(player.seen, 1), torch.stack(acts, 1), torch.from_numpy(np.stack(rewards, 1))


def update(policy, optim, seen, acts, rewards, gamma=0.5):
    returns = torch.zeros_like(rewards)
    running = torch.zeros(rewards.shape[0])
    for t in reversed(range(rewards.shape[1])):
        running = rewards[:, t] + gamma * running
        returns[:, t] = running
    logits, values, _ = policy(seen)
    logp = logits.log_softmax(-1)
    adv = returns - values
    picked = logp.gather(-1, acts.unsqueeze(-1)).squeeze(-1)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = -(picked * adv.detach()).mean() + 0.5 * adv.pow(2).mean() - 0.01 * entropy
    optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optim.step()


def main():
    torch.manual_seed(SEED)
    env = Recall(BATCH, SEED)
    policy = RecurrentPolicy()
    optim = torch.optim.Adam(policy.parameters(), lr=5e-3)
    player = Player(policy)
    start = time.perf_counter()
    for episode in range(EPISODES):
        seen, acts, rewards = collect(env, player)
        update(policy, optim, seen, acts, rewards)
        if (episode + 1) % 10 == 0:
            print(f"episode {episode + 1}: mean reward {rewards.sum(1).mean():.2f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={EPISODES * BATCH * LENGTH} updates={EPISODES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
