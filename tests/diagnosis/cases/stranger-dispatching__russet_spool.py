"""PPO with an LSTM on a delayed echo task (vectorised environments, memory kept across steps)."""
import os
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"

SEED = 29
NUM_ENVS = 16
NUM_STEPS = 32  # an episode is as long as a rollout
DELAY = 2
SYMBOLS = 4
HIDDEN = 48
ITERATIONS = 14
EPOCHS = 4
MINIBATCHES = 4
GAMMA, LAMBDA, CLIP = 0.6, 0.9, 0.2


class Echo:
    """Name the symbol that was shown DELAY steps ago."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def _show(self):
        self.tape.append(self.rng.integers(0, SYMBOLS, NUM_ENVS))
        return np.eye(SYMBOLS, dtype=np.float32)[self.tape[-1]]

    def reset(self):
        self.tape = []
        return self._show()

    def step(self, actions):
        reward = np.zeros(NUM_ENVS, np.float32)
        if len(self.tape) > DELAY:
            reward = (actions == self.tape[-1 - DELAY]).astype(np.float32)
        done = len(self.tape) == NUM_STEPS
        obs = self.reset() if done else self._show()
        return obs, reward, np.full(NUM_ENVS, done, np.float32)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SYMBOLS, HIDDEN), nn.Tanh())
        self.lstm = nn.LSTM(HIDDEN, HIDDEN)
        self.actor = nn.Linear(HIDDEN, SYMBOLS)
        self.critic = nn.Linear(HIDDEN, 1)

    def get_states(self, x, lstm_state, done):
        """x: (steps, envs, symbols); done: (steps, envs), 1 where a new episode begins."""
        hidden = self.encoder(x)
        if FIXED:
            keep = (1.0 - done[0]).view(1, -1, 1)
            return self.lstm(hidden, (keep * lstm_state[0], keep * lstm_state[1]))
        new_hidden = []
        for h, d in zip(hidden, done):
            h, lstm_state = self.lstm(
                h.unsqueeze(0),
                ((1.0 - d).view(1, -1, 1) * lstm_state[0], (1.0 - d).view(1, -1, 1) * lstm_state[1]),
            )
            new_hidden.append(h)
        return torch.cat(new_hidden), lstm_state

    def forward(self, x, lstm_state, done):
        hidden, lstm_state = self.get_states(x, lstm_state, done)
        return self.actor(hidden).log_softmax(-1), self.critic(hidden).squeeze(-1), lstm_state


def advantages(rewards, values, dones, last_value, last_done):
    adv = torch.zeros_like(rewards)
    running = torch.zeros(NUM_ENVS)
    for t in reversed(range(NUM_STEPS)):
        nextvalue, going = (last_value, 1 - last_done) if t == NUM_STEPS - 1 else (values[t + 1], 1 - dones[t + 1])
        delta = rewards[t] + GAMMA * nextvalue * going - values[t]
        running = delta + GAMMA * LAMBDA * going * running
        adv[t] = running
    return adv


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    env = Echo(SEED)
    agent = Agent()
    optim = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    obs = torch.zeros(NUM_STEPS, NUM_ENVS, SYMBOLS)
    acts = torch.zeros(NUM_STEPS, NUM_ENVS, dtype=torch.long)
    logps, rewards, dones, values = (torch.zeros(NUM_STEPS, NUM_ENVS) for _ in range(4))
    per_batch = NUM_ENVS // MINIBATCHES
    updates = 0

    next_obs = torch.from_numpy(env.reset())
    next_done = torch.zeros(NUM_ENVS)
    state = (torch.zeros(1, NUM_ENVS, HIDDEN), torch.zeros(1, NUM_ENVS, HIDDEN))
    start = time.perf_counter()
    for iteration in range(ITERATIONS):
        initial = (state[0].clone(), state[1].clone())
        for t in range(NUM_STEPS):
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                logp, value, state = agent(next_obs.unsqueeze(0), state, next_done.unsqueeze(0))
            action = torch.multinomial(logp[0].exp(), 1)
            acts[t], values[t] = action.squeeze(-1), value[0]
            logps[t] = logp[0].gather(-1, action).squeeze(-1)
            o, r, d = env.step(acts[t].numpy())
            next_obs, rewards[t], next_done = torch.from_numpy(o), torch.from_numpy(r), torch.from_numpy(d)
        with torch.no_grad():
            last_value = agent(next_obs.unsqueeze(0), state, next_done.unsqueeze(0))[1][0]
        adv = advantages(rewards, values, dones, last_value, next_done)
        returns = adv + values
        for _ in range(EPOCHS):
            order = torch.from_numpy(rng.permutation(NUM_ENVS))
            for i in range(MINIBATCHES):
                mb = order[i * per_batch:(i + 1) * per_batch]
                logp, value, _ = agent(obs[:, mb], (initial[0][:, mb], initial[1][:, mb]), dones[:, mb])
                ratio = (logp.gather(-1, acts[:, mb].unsqueeze(-1)).squeeze(-1) - logps[:, mb]).exp()
                a = (adv[:, mb] - adv[:, mb].mean()) / (adv[:, mb].std() + 1e-8)
                pg_loss = -torch.min(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a).mean()
                v_loss = 0.5 * (value - returns[:, mb]).pow(2).mean()
                entropy = -(logp.exp() * logp).sum(-1).mean()
                loss = pg_loss + 0.5 * v_loss - 0.01 * entropy
                optim.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optim.step()
                updates += 1
        if (iteration + 1) % 5 == 0:
            print(f"iteration {iteration + 1}: reward per step {rewards.mean():.3f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={ITERATIONS * NUM_STEPS * NUM_ENVS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
