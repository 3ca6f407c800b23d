"""Q-learning in a table, without torch: there are no updates of an optimizer.

python q_learning.py
"""

import numpy as np
from tally import Tally, Walk

STEPS = 20_000


def main():
    tally = Tally()
    env, random = Walk(tally), np.random.default_rng(1)
    table = np.zeros((16, 2))
    place = lambda observation: int(np.clip(observation[0] + 8, 0, 15))
    state = place(env.reset(seed=1)[0])
    for _ in range(STEPS):
        action = int(random.integers(2)) if random.random() < 0.1 else int(table[state].argmax())
        observation, reward, terminated, truncated, _ = env.step(action)
        following = place(observation)
        goal = reward + 0.99 * table[following].max() * (not terminated)
        table[state, action] += 0.1 * (goal - table[state, action])
        state = place(env.reset()[0]) if terminated or truncated else following
    tally.iterations = None  # it learns in every step
    tally.say(STEPS, 0)


if __name__ == "__main__":
    main()
