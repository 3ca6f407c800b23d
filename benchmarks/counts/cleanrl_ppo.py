"""PPO in one file on gymnasium's vector environments. Where they reset in the step after an episode's end (their default),
such a step is none: nothing acted.

python cleanrl_ppo.py sync|async|same_step
"""

import sys

import gymnasium as gym
import numpy as np
import torch
from tally import Tally, Walk
from torch import nn
from torch.distributions.categorical import Categorical

ENVS, STEPS, ITERATIONS, EPOCHS, MINIBATCHES = 4, 256, 5, 2, 4


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), self.critic(x).flatten()


def make_envs(which, tally):
    makers = [lambda: gym.wrappers.RecordEpisodeStatistics(Walk(tally))] * ENVS
    if which == "async":
        return gym.vector.AsyncVectorEnv(makers, context="fork")
    if which == "same_step":
        return gym.vector.SyncVectorEnv(makers, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    return gym.vector.SyncVectorEnv(makers)


def main():
    torch.set_num_threads(1)
    which, tally = sys.argv[1], Tally()
    envs, agent = make_envs(which, tally), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs = torch.zeros((STEPS, ENVS, 4))
    actions, logprobs, rewards, dones, values = (torch.zeros((STEPS, ENVS)) for _ in range(5))
    next_obs, next_done = torch.Tensor(envs.reset(seed=1)[0]), torch.zeros(ENVS)
    autoresets = 0
    for _ in range(ITERATIONS):
        for step in range(STEPS):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                actions[step], logprobs[step], values[step] = agent.get_action_and_value(next_obs)
            if which != "same_step":
                autoresets += int(next_done.sum())
            seen, reward, terminations, truncations, _ = envs.step(actions[step].long().numpy())
            rewards[step] = torch.tensor(reward)
            next_obs, next_done = torch.Tensor(seen), torch.Tensor(np.logical_or(terminations, truncations))

        with torch.no_grad():
            following, advantage = agent.critic(next_obs).flatten(), torch.zeros(ENVS)
            advantages, alive = torch.zeros_like(rewards), 1 - next_done
            for t in reversed(range(STEPS)):
                delta = rewards[t] + 0.99 * following * alive - values[t]
                advantages[t] = advantage = delta + 0.99 * 0.95 * alive * advantage
                following, alive = values[t], 1 - dones[t]
        returns = (advantages + values).flatten()
        b_obs, b_actions, b_logprobs = obs.flatten(0, 1), actions.flatten(), logprobs.flatten()
        for _ in range(EPOCHS):
            for indices in torch.randperm(STEPS * ENVS).chunk(MINIBATCHES):
                _, newlogprob, newvalue = agent.get_action_and_value(b_obs[indices], b_actions[indices])
                ratio = (newlogprob - b_logprobs[indices]).exp()
                chosen = advantages.flatten()[indices]
                policy_loss = -torch.min(ratio * chosen, ratio.clamp(0.8, 1.2) * chosen).mean()
                loss = policy_loss + 0.5 * ((newvalue - returns[indices]) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                tally.updates += 1
        tally.iterations += 1
    envs.close()
    tally.autoresets = autoresets
    tally.say(ENVS * STEPS * ITERATIONS, ITERATIONS * EPOCHS * MINIBATCHES)


if __name__ == "__main__":
    main()
