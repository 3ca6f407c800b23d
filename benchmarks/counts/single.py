"""Loops by hand on one environment: REINFORCE on whole episodes; the same with an environment made anew for every episode;
and with an environment that has no `reset` at all, because it begins again by itself.

python single.py reinforce|anew|no_reset
"""

import sys

import numpy as np
from learner import Learner
from tally import Tally, Walk

BATCHES, EPISODES, STEPS = 5, 16, 500


class Endless:
    """Not gymnasium's: `step` answers observation, reward and whether the episode has ended, and goes on with the next one."""

    def __init__(self, tally):
        self.tally, self.random = tally, np.random.default_rng(1)
        self.place, self.observation = 0.0, np.zeros(4, np.float32)

    def step(self, action):
        self.tally.add(self.tally.steps)
        self.place += float(action) - 0.5 + float(self.random.normal())
        self.observation = np.array([self.place, 0.0, 0.0, 1.0], np.float32)
        done = abs(self.place) > 6
        if done:
            self.tally.add(self.tally.episodes)
            self.place = 0.0
        return self.observation, 1.0, done


def play_episode(env, learner, batch, observation):
    done = False
    while not done:
        action = int(learner.act(observation))
        following, reward, terminated, truncated, _ = env.step(action)
        batch.append((observation, action, reward))
        observation, done = following, terminated or truncated


def main():
    which, tally = sys.argv[1], Tally()
    learner, asked = Learner(tally), 0
    env = Endless(tally) if which == "no_reset" else Walk(tally)
    observation = np.zeros(4, np.float32)
    for _ in range(BATCHES):
        batch = []
        if which == "no_reset":
            for _ in range(STEPS):
                action = int(learner.act(observation))
                following, reward, _ = env.step(action)
                batch.append((observation, action, reward))
                observation = following
        else:
            for _ in range(EPISODES):
                env = Walk(tally) if which == "anew" else env
                play_episode(env, learner, batch, env.reset()[0])
        asked += len(batch)
        learner.learn(*(np.array(column) for column in zip(*batch, strict=True)))
    tally.say(asked, BATCHES * 10)


if __name__ == "__main__":
    main()
