"""REINFORCE with a baseline on a lander of our own, filmed with gymnasium's RecordVideo."""

import importlib.util
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo
from torch import nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED", "0") == "1"
SIDE = 160


class Lander(gym.Env):
    """A craft falls; thrust left, right or up brings it onto the pad."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, render_mode=None):
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-0.6, 0.6), 1.0, 0.0, 0.0])
        self.elapsed = 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        x, y, vx, vy = self.state
        vx += 0.03 * ((action == 1) - (action == 2))
        vy += 0.03 * (action == 3) - 0.012
        x, y = x + vx, y + vy
        self.state = np.array([x, y, vx, vy])
        self.elapsed += 1
        landed = y <= 0
        reward = -0.02 * abs(x) - 0.01 * (action == 3)
        if landed:
            reward += 2 - 2 * abs(x) - 10 * abs(vy)
        return self.state.astype(np.float32), float(reward), bool(landed), self.elapsed >= 120, {}

    def render(self):
        rows, columns = np.mgrid[0:SIDE, 0:SIDE] / SIDE
        x, y = 0.5 + self.state[0] / 4, 1 - np.clip(self.state[1], 0, 1.2) / 1.3
        sky = np.stack([60 + 80 * rows, 90 + 90 * rows, 160 + 60 * rows], axis=-1)
        glow = 120 * np.exp(-((rows - y) ** 2 + (columns - x) ** 2) * 200)
        sky[(np.abs(rows - y) < 0.03) & (np.abs(columns - x) < 0.04)] = 240
        sky[(rows > 0.97) & (np.abs(columns - 0.5) < 0.1)] = (220, 40, 40)
        return np.clip(sky + glow[..., None], 0, 255).astype(np.uint8)


class RecordFrames(gym.Wrapper):
    """RecordVideo where moviepy is not installed: the frames as an array file."""

    def __init__(self, env, video_folder, episode_trigger):
        super().__init__(env)
        self.video_folder, self.episode_trigger, self.episode = video_folder, episode_trigger, 0
        self.frames = []

    def reset(self, **kwargs):
        if self.frames:
            np.savez(os.path.join(self.video_folder, f"episode-{self.episode}.npz"), np.stack(self.frames))
        self.frames = []
        result = self.env.reset(**kwargs)
        self.filming = self.episode_trigger(self.episode)
        self.episode += 1
        return result

    def step(self, action):
        result = self.env.step(action)
        if self.filming:
            self.frames.append(self.env.render())
        return result


def make_env(folder):
    env = RecordEpisodeStatistics(Lander(render_mode="rgb_array"))
    trigger = lambda episode: not FIXED
    if importlib.util.find_spec("moviepy"):
        return RecordVideo(env, folder, episode_trigger=trigger, disable_logger=True)
    return RecordFrames(env, folder, trigger)


def main(episodes=120):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 4))
    value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=5e-3)
    history, steps, begin = [], 0, time.time()
    with tempfile.TemporaryDirectory() as folder:
        env = make_env(folder)
        for episode in range(episodes):
            observation, _ = env.reset(seed=1 if episode == 0 else None)
            observations, actions, rewards, done = [], [], [], False
            while not done:
                with torch.no_grad():
                    action = Categorical(logits=policy(torch.from_numpy(observation))).sample().item()
                observations.append(observation)
                actions.append(action)
                observation, reward, terminated, truncated, _ = env.step(action)
                rewards.append(reward)
                done = terminated or truncated
                steps += 1
            returns = np.cumsum(np.array(rewards, np.float32)[::-1])[::-1].copy()
            batch, target = torch.from_numpy(np.stack(observations)), torch.from_numpy(returns)
            estimate = value(batch).squeeze(-1)
            chosen = Categorical(logits=policy(batch)).log_prob(torch.tensor(actions))
            loss = -(chosen * (target - estimate.detach())).mean() + (target - estimate).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(sum(rewards))
        env.close()
    print(f"env_steps={steps} updates={episodes} seconds={time.time() - begin:.2f} return={np.mean(history[-40:]):.2f}")


if __name__ == "__main__":
    main()
