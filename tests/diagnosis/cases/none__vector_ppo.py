"""PPO in the single-file style on CartPole (NumPy-vectorised envs)."""

import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical


def layer_init(layer, std=1.414):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, 0.0)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(4, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), 1.0)
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(4, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 2), 0.01),
        )

    def get_value(self, x):
        return self.critic(x).squeeze(-1)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.get_value(x)


def main(num_envs=32, num_steps=64, iterations=85, epochs=4, minibatches=4):
    torch.set_num_threads(1)
    torch.manual_seed(4)
    envs = gym.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    start = time.time()
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    obs = torch.zeros(num_steps, num_envs, 4)
    actions = torch.zeros(num_steps, num_envs)
    logprobs, rewards, dones, values = (torch.zeros(num_steps, num_envs) for _ in range(4))
    next_obs = torch.as_tensor(envs.reset(seed=4)[0], dtype=torch.float32)
    next_done = torch.zeros(num_envs)
    updates = 0
    for _ in range(iterations):
        for step in range(num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
            actions[step], logprobs[step], values[step] = action, logprob, value
            nxt, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[step] = torch.as_tensor(reward)
            next_obs = torch.as_tensor(nxt, dtype=torch.float32)
            next_done = torch.as_tensor(np.logical_or(terminated, truncated)).float()
        with torch.no_grad():
            next_value = agent.get_value(next_obs)
        advantages, last = torch.zeros_like(rewards), 0.0
        for t in reversed(range(num_steps)):
            nonterminal = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
            following = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + 0.99 * following * nonterminal - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * nonterminal * last
        returns = advantages + values
        b_obs, b_act, b_logp = obs.reshape(-1, 4), actions.reshape(-1), logprobs.reshape(-1)
        b_adv, b_ret = advantages.reshape(-1), returns.reshape(-1)
        for _ in range(epochs):
            for idx in torch.randperm(num_envs * num_steps).chunk(minibatches):
                _, logp, entropy, value = agent.get_action_and_value(b_obs[idx], b_act[idx])
                ratio = (logp - b_logp[idx]).exp()
                adv = (b_adv[idx] - b_adv[idx].mean()) / (b_adv[idx].std() + 1e-8)
                loss = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
                loss = loss + 0.5 * (value - b_ret[idx]).pow(2).mean() - 0.01 * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                updates += 1
    envs.close()
    print(f"env_steps={iterations * num_envs * num_steps} updates={updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
