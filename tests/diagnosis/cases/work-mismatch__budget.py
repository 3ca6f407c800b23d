"""PPO on CartPole in the single-file style, with a budget of environment steps and TensorBoard curves."""

import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.utils.tensorboard import SummaryWriter

FIXED = os.environ.get("FIXED") == "1"
TOTAL_TIMESTEPS = 12_288
NUM_ENVS, NUM_STEPS, EPOCHS, MINIBATCHES = 4, 128, 4, 4


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def act(self, x, action=None):
        dist = torch.distributions.Categorical(logits=self.actor(x))
        action = dist.sample() if action is None else action
        return action, dist.log_prob(action), dist.entropy(), self.critic(x)[:, 0]


def main(folder):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    writer = SummaryWriter(folder)
    envs = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="sync")
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    start = time.time()
    global_step = updates = 0
    obs = torch.from_numpy(envs.reset(seed=1)[0])
    done = torch.zeros(NUM_ENVS)
    while global_step < TOTAL_TIMESTEPS:
        store = []
        for _ in range(NUM_STEPS):
            global_step += NUM_ENVS if FIXED else 1
            with torch.no_grad():
                action, logp, _, value = agent.act(obs)
            nxt, reward, terminated, truncated, _ = envs.step(action.numpy())
            store.append((obs, action, logp, value, torch.from_numpy(reward).float(), done))
            obs, done = torch.from_numpy(nxt), torch.from_numpy(np.logical_or(terminated, truncated)).float()
        S, A, L, V, R, D = (torch.stack(column) for column in zip(*store, strict=True))
        with torch.no_grad():
            after = agent.critic(obs)[:, 0]
        adv, run = torch.zeros_like(R), 0
        for t in reversed(range(NUM_STEPS)):
            live = 1 - (done if t == NUM_STEPS - 1 else D[t + 1])
            ahead = after if t == NUM_STEPS - 1 else V[t + 1]
            run = R[t] + 0.99 * live * ahead - V[t] + 0.99 * 0.95 * live * run
            adv[t] = run
        S, A, L, V, adv = S.flatten(0, 1), A.flatten(), L.flatten(), V.flatten(), adv.flatten()
        ret = adv + V
        for _ in range(EPOCHS):
            for i in torch.randperm(len(A)).chunk(MINIBATCHES):
                _, logp, entropy, value = agent.act(S[i], A[i])
                ratio = (logp - L[i]).exp()
                w = (adv[i] - adv[i].mean()) / (adv[i].std() + 1e-8)
                loss = torch.max(-w * ratio, -w * ratio.clamp(0.8, 1.2)).mean() - 0.01 * entropy.mean()
                loss = loss + 0.5 * (value - ret[i]).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                updates += 1
        writer.add_scalar("losses/total", loss.item(), global_step)
        writer.add_scalar("charts/SPS", int(global_step / (time.time() - start)), global_step)
    print(f"env_steps={global_step} updates={updates} seconds={time.time() - start:.2f}")
    envs.close()
    writer.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
