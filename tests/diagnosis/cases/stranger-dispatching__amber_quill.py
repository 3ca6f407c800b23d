"""PPO for continuous actions in one file, after CleanRL's ppo_continuous_action.py."""
import os
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from gymnasium import wrappers
from gymnasium.wrappers import vector as vector_wrappers
from torch.distributions.normal import Normal

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Args:
    seed: int = 3
    num_envs: int = 16
    num_steps: int = 128
    iterations: int = 17
    learning_rate: float = 1e-3
    gamma: float = 0.95
    gae_lambda: float = 0.95
    epochs: int = 5
    minibatches: int = 4
    clip_coef: float = 0.2


def preprocess(env, library, gamma):
    env = library.NormalizeObservation(env)
    env = library.TransformObservation(env, lambda o: np.clip(o, -10, 10), None)
    env = library.NormalizeReward(env, gamma=gamma)
    return library.TransformReward(env, lambda r: np.clip(r, -10, 10))


def make_env(args):
    def thunk():
        env = wrappers.RecordEpisodeStatistics(gym.make("Pendulum-v1"))
        return env if FIXED else preprocess(env, wrappers, args.gamma)

    return thunk


def make_envs(args):
    envs = gym.vector.SyncVectorEnv([make_env(args) for _ in range(args.num_envs)])
    return preprocess(envs, vector_wrappers, args.gamma) if FIXED else envs


def layer_init(layer, std=np.sqrt(2)):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(n_in, n_out, std):
    return nn.Sequential(layer_init(nn.Linear(n_in, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(),
                         layer_init(nn.Linear(64, n_out), std))


class Agent(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.critic = mlp(obs_dim, 1, 1.0)
        self.actor_mean = mlp(obs_dim, act_dim, 0.01)
        self.actor_logstd = nn.Parameter(torch.zeros(1, act_dim))

    def get_action_and_value(self, x, action=None):
        mean = self.actor_mean(x)
        dist = Normal(mean, self.actor_logstd.exp().expand_as(mean))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action).sum(1), self.critic(x).squeeze(-1)


def rollout(envs, agent, buf, obs, done, returns, args):
    low, high = envs.single_action_space.low, envs.single_action_space.high
    for t in range(args.num_steps):
        with torch.no_grad():
            action, logprob, value = agent.get_action_and_value(obs)
        buf["obs"][t], buf["dones"][t], buf["actions"][t] = obs, done, action
        buf["logprobs"][t], buf["values"][t] = logprob, value
        next_obs, reward, term, trunc, infos = envs.step(np.clip(action.numpy(), low, high))
        buf["rewards"][t] = torch.as_tensor(reward)
        obs = torch.as_tensor(next_obs, dtype=torch.float32)
        done = torch.as_tensor(np.logical_or(term, trunc), dtype=torch.float32)
        if "episode" in infos:
            returns.extend(infos["episode"]["r"][infos["_episode"]].tolist())
    return obs, done


def compute_gae(buf, next_value, next_done, args):
    advantages = torch.zeros_like(buf["rewards"])
    last = torch.zeros_like(next_value)
    for t in reversed(range(args.num_steps)):
        alive = 1.0 - (next_done if t == args.num_steps - 1 else buf["dones"][t + 1])
        following = next_value if t == args.num_steps - 1 else buf["values"][t + 1]
        delta = buf["rewards"][t] + args.gamma * following * alive - buf["values"][t]
        last = advantages[t] = delta + args.gamma * args.gae_lambda * alive * last
    return advantages


def update(agent, optimizer, buf, advantages, args):
    flat = {k: v.flatten(0, 1) for k, v in buf.items()}
    adv, ret = advantages.flatten(), (advantages + buf["values"]).flatten()
    for _ in range(args.epochs):
        for idx in torch.randperm(len(adv)).split(len(adv) // args.minibatches):
            _, logprob, value = agent.get_action_and_value(flat["obs"][idx], flat["actions"][idx])
            ratio = (logprob - flat["logprobs"][idx]).exp()
            a = (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
            pg_loss = torch.max(-a * ratio, -a * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)).mean()
            loss = pg_loss + 0.25 * (value - ret[idx]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    return args.epochs * args.minibatches


def main():
    args = Args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    envs = make_envs(args)
    agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.shape[0])
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    buf = {k: torch.zeros(shape) for k in ("dones", "logprobs", "values", "rewards")}
    buf["obs"] = torch.zeros(shape + envs.single_observation_space.shape)
    buf["actions"] = torch.zeros(shape + envs.single_action_space.shape)
    obs, done = torch.as_tensor(envs.reset(seed=args.seed)[0], dtype=torch.float32), torch.zeros(args.num_envs)
    returns, env_steps, updates = [], 0, 0

    start = time.perf_counter()
    for _ in range(args.iterations):
        obs, done = rollout(envs, agent, buf, obs, done, returns, args)
        env_steps += args.num_steps * args.num_envs
        with torch.no_grad():
            advantages = compute_gae(buf, agent.critic(obs).squeeze(-1), done, args)
        updates += update(agent, optimizer, buf, advantages, args)
    seconds = time.perf_counter() - start

    print(f"mean return of the last 32 episodes: {np.mean(returns[-32:]):.1f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
