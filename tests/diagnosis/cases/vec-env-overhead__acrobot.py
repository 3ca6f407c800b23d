"""A2C on Acrobot with gymnasium's vector API."""

import argparse
import os
import time

import gymnasium as gym
import numpy as np
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--env-id", default="Acrobot-v1")
parser.add_argument("--num-envs", type=int, default=6)
parser.add_argument("--updates", type=int, default=450)
parser.add_argument("--rollout", type=int, default=16)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--mode", default="sync" if os.environ.get("FIXED") == "1" else "async", choices=["sync", "async"])
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(1)

envs = gym.make_vec(args.env_id, num_envs=args.num_envs, vectorization_mode=args.mode)
n_obs = envs.single_observation_space.shape[0]
n_act = int(envs.single_action_space.n)
net = torch.nn.Sequential(
    torch.nn.Linear(n_obs, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, n_act + 1)
)
optimizer = torch.optim.RMSprop(net.parameters(), lr=args.lr, alpha=0.99)

start = time.time()
obs, _ = envs.reset(seed=1)
for _update in range(args.updates):
    observations = np.zeros((args.rollout, args.num_envs, n_obs), np.float32)
    actions = np.zeros((args.rollout, args.num_envs), np.int64)
    rewards = np.zeros((args.rollout, args.num_envs), np.float32)
    masks = np.zeros((args.rollout, args.num_envs), np.float32)
    for t in range(args.rollout):
        with torch.no_grad():
            logits = net(torch.as_tensor(obs, dtype=torch.float32))[:, :n_act]
            action = torch.multinomial(logits.softmax(-1), 1)[:, 0].numpy()
        observations[t], actions[t] = obs, action
        obs, rewards[t], terminated, truncated, _ = envs.step(action)
        masks[t] = 1.0 - (terminated | truncated)
    with torch.no_grad():
        value = net(torch.as_tensor(obs, dtype=torch.float32))[:, -1].numpy()
    returns = np.zeros_like(rewards)
    for t in reversed(range(args.rollout)):
        value = rewards[t] + 0.99 * masks[t] * value
        returns[t] = value
    out = net(torch.from_numpy(observations))
    logp = out[..., :n_act].log_softmax(-1)
    chosen = logp.gather(-1, torch.from_numpy(actions)[..., None])[..., 0]
    advantage = torch.from_numpy(returns) - out[..., -1]
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = -(chosen * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean() - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()

steps = args.updates * args.rollout * args.num_envs
print(f"env_steps={steps} updates={args.updates} seconds={time.time() - start:.2f}")
envs.close()
