"""DQN in one file, with the replay buffer of stable-baselines3 and a target network that is copied now and then.

python cleanrl_dqn.py [--steps 20000] [--tensorboard 0]
"""

import argparse
import dataclasses
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from stable_baselines3.common.buffers import ReplayBuffer
from truth import Truth


@dataclasses.dataclass
class Args:
    steps: int = 20_000
    """environment steps in all"""
    env_id: str = "CartPole-v1"
    seed: int = 1
    learning_rate: float = 2.5e-4
    buffer_size: int = 10_000
    gamma: float = 0.99
    tau: float = 1.0
    target_network_frequency: int = 500
    batch_size: int = 128
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_fraction: float = 0.5
    learning_starts: int = 1_000
    train_frequency: int = 4
    tensorboard: int = 1
    """write scalars to ./tb"""


def parse_args():
    parser = argparse.ArgumentParser()
    for field in dataclasses.fields(Args):
        parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default)
    return Args(**vars(parser.parse_args()))


def make_env(env_id, seed):
    def thunk():
        env = gym.wrappers.RecordEpisodeStatistics(gym.make(env_id))
        env.action_space.seed(seed)
        return env

    return thunk


class QNetwork(nn.Module):
    def __init__(self, env):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(int(np.prod(env.single_observation_space.shape)), 120), nn.ReLU(),
            nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, int(env.single_action_space.n)),
        )  # fmt: skip

    def forward(self, x):
        return self.network(x)


def linear_schedule(start_e, end_e, duration, t):
    return max((end_e - start_e) / duration * t + start_e, end_e)


if __name__ == "__main__":
    args = parse_args()
    truth = Truth()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    writer = None
    if args.tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter("tb")

    envs = gym.vector.SyncVectorEnv([make_env(args.env_id, args.seed)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    q_network = QNetwork(envs)
    optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate)
    target_network = QNetwork(envs)
    target_network.load_state_dict(q_network.state_dict())
    rb = ReplayBuffer(
        args.buffer_size, envs.single_observation_space, envs.single_action_space, "cpu", handle_timeout_termination=False
    )
    start_time = time.time()
    updates = 0

    obs, _ = envs.reset(seed=args.seed)
    truth.start()
    for global_step in range(args.steps):
        epsilon = linear_schedule(args.start_e, args.end_e, args.exploration_fraction * args.steps, global_step)
        if random.random() < epsilon:
            actions = np.array([envs.single_action_space.sample() for _ in range(envs.num_envs)])
        else:
            q_values = q_network(torch.Tensor(obs))
            actions = torch.argmax(q_values, dim=1).cpu().numpy()

        next_obs, rewards, terminations, truncations, infos = envs.step(actions)

        real_next_obs = next_obs
        if "final_info" in infos:
            truth.enter("log")
            episode = infos["final_info"]["episode"]
            for ret, length in zip(episode["r"][episode["_r"]], episode["l"][episode["_l"]], strict=True):
                print(f"global_step={global_step}, episodic_return={ret}")
                truth.keep(ret, length)
                if writer is not None:
                    writer.add_scalar("charts/episodic_return", ret, global_step)
                    writer.add_scalar("charts/episodic_length", length, global_step)
            truth.enter("collect")
            real_next_obs = next_obs.copy()
            for index in np.flatnonzero(infos["_final_obs"]):
                real_next_obs[index] = infos["final_obs"][index]
        rb.add(obs, real_next_obs, actions, rewards, terminations, infos)
        obs = next_obs

        if global_step > args.learning_starts:
            if global_step % args.train_frequency == 0:
                truth.enter("learn")
                data = rb.sample(args.batch_size)
                with torch.no_grad():
                    target_max, _ = target_network(data.next_observations).max(dim=1)
                    td_target = data.rewards.flatten() + args.gamma * target_max * (1 - data.dones.flatten())
                old_val = q_network(data.observations).gather(1, data.actions).squeeze()
                loss = F.mse_loss(td_target, old_val)

                if global_step % 100 == 0:
                    truth.enter("log")
                    truth.keep(loss.item(), old_val.mean().item())
                    sps = int(global_step / (time.time() - start_time))
                    print("SPS:", sps)
                    if writer is not None:
                        writer.add_scalar("losses/td_loss", loss, global_step)
                        writer.add_scalar("losses/q_values", old_val.mean().item(), global_step)
                        writer.add_scalar("charts/SPS", sps, global_step)
                    truth.enter("learn")

                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                updates += 1

            if global_step % args.target_network_frequency == 0:
                truth.enter("learn")
                for target_param, q_param in zip(target_network.parameters(), q_network.parameters(), strict=True):
                    target_param.data.copy_(args.tau * q_param.data + (1.0 - args.tau) * target_param.data)
            truth.enter("collect")

    truth.stop()
    envs.close()
    if writer is not None:
        writer.close()
    truth.keep_weights(q_network.parameters())
    truth.tell(env_steps=args.steps, updates=updates)
