"""The policy is called for one observation at a time.

What to do: step several environments and call the policy once for all of them. Divide the steps per rollout by their number,
so that an update sees as many samples as before.

    env = gym.make("CartPole-v1"); model = PPO("MlpPolicy", env, n_steps=2048)            # before
    env = make_vec_env("CartPole-v1", n_envs=8); model = PPO("MlpPolicy", env, n_steps=256)   # after

A call of a small network costs the same for one row as for eight: nearly all of it is the fixed cost of launching its
operations. The library's own work for each call is shared too. When to ignore it: only one environment can exist (a robot, a
licence), or the updates after every single step are the point of the algorithm. More environments may change what is learnt:
the samples of an update come from more, shorter pieces of episodes. Compare the return.

Recognised by: the rows of policy calls (1.5 or fewer on average), and their cost. Predicted from your own network, measured at
other sizes after the run; without that measurement, from the share of its time that is no arithmetic."""

from __future__ import annotations

from ..axes import mean_rows, split_collect, with_envs
from ..evidence import Evidence
from ..places import blame_caller
from ..rule import Candidate, Expected, percent, speedup
from .framework_overhead import is_plumbing

TURN = 285
ACTION = "step several environments and call the policy once for all of them (and check that the return does not suffer)"
CHANGES_LEARNING = True
ENVS = 8  # what is predicted for
MOST_ROWS, LEAST_GAIN = 1.5, 1.15


def find(e: Evidence) -> Candidate | None:
    rows, calls, steps = mean_rows(e), e.calls_of("collect/policy"), e.step_calls
    if not rows or rows > MOST_ROWS or not steps or not 0.5 < calls / steps < 2 or e.env_steps > MOST_ROWS * steps:
        return None
    parts, effect = split_collect(e), with_envs(e, ENVS)
    if e.share(x for x in (*parts.shared, *parts.vector) if is_plumbing(e, x)) > e.share(parts.policy):
        return None  # the library's own code is the larger part: that is framework-overhead
    saved = effect.saved_ns(e.left) / e.loop_ns
    gain = speedup(saved)
    if gain < LEAST_GAIN:
        return None
    touched = (*parts.policy, *parts.shared, *parts.vector)
    paid = percent(e.share((*parts.policy, *parts.shared)))
    said = f"{calls:,} calls of the policy for {calls * rows:,.0f} observations"
    source = f"{effect.source} (measured after the run)" if effect.measured else effect.source
    return Candidate(
        f"the policy is called for one observation at a time: {paid} of the loop is paid per call",
        blame_caller(e, parts.policy), "collect/policy", touched, share=saved,
        gain=Expected(gain), measured=effect.measured, evidence=(said, source),
        action=f"step {ENVS} environments and call the policy once for all of them, with as many samples per update as now",
    )  # fmt: skip
