"""PPO from the parts of torchrl: a Collector, a ProbabilisticActor, GAE, ClipPPOLoss and a ReplayBuffer for minibatches.

python torchrl_ppo.py [--steps 8000]
"""

import argparse
import os

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
from torchrl.envs import Compose, DoubleToFloat, GymEnv, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE
from truth import Truth


def make_env(seed):
    env = TransformedEnv(GymEnv("CartPole-v1"), Compose(DoubleToFloat(), StepCounter(), RewardSum()))
    env.set_seed(seed)
    return env


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--frames-per-batch", type=int, default=500)
    parser.add_argument("--eval-every", type=int, default=4, help="batches between evaluations and checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    os.makedirs("checkpoints", exist_ok=True)
    truth = Truth()

    env = make_env(args.seed)
    eval_env = make_env(args.seed + 100)
    actor = ProbabilisticActor(
        TensorDictModule(mlp(4, 2), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"], spec=env.action_spec, distribution_class=OneHotCategorical, return_log_prob=True,
    )  # fmt: skip
    critic = ValueOperator(mlp(4, 1), in_keys=["observation"])
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=True)
    loss_module = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.01, critic_coeff=0.5)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=3e-4)
    buffer = ReplayBuffer(storage=LazyTensorStorage(args.frames_per_batch), sampler=SamplerWithoutReplacement(), batch_size=64)
    collector = Collector(env, actor, frames_per_batch=args.frames_per_batch, total_frames=args.steps)

    frames, updates = 0, 0
    truth.start()
    for batch, data in enumerate(collector):
        frames += data.numel()
        truth.enter("learn")
        advantage(data)
        truth.enter("collect")
        buffer.extend(data.reshape(-1))

        truth.enter("learn")
        for _epoch in range(4):
            for _ in range(args.frames_per_batch // 64):
                minibatch = buffer.sample()
                losses = loss_module(minibatch)
                loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                loss.backward()
                torch.nn.utils.clip_grad_norm_(loss_module.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
                updates += 1

        truth.enter("log")
        done = data["next", "done"]
        returns = data["next", "episode_reward"][done]
        truth.keep(loss.item(), *returns.tolist())
        print(f"frames {frames:>7}  loss {loss.item():8.4f}  return {returns.mean().item() if len(returns) else 0:.1f}")

        if args.eval_every and (batch + 1) % args.eval_every == 0:
            truth.enter("eval")
            with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
                rollout = eval_env.rollout(200, actor)
            truth.enter("log")
            score = rollout["next", "reward"].sum().item()
            truth.keep(score)
            print(f"frames {frames:>7}  evaluation {score:.1f}")
            truth.enter("checkpoint")
            torch.save({"actor": actor.state_dict(), "critic": critic.state_dict()}, f"checkpoints/ppo_{batch}.pt")
        truth.enter("collect")
    truth.stop()
    collector.shutdown()
    truth.keep_weights(loss_module.parameters())
    truth.tell(env_steps=frames, updates=updates)


if __name__ == "__main__":
    main()
