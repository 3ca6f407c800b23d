"""torchrl: a collector gives batches, the script learns from them.

python torchrl_collector.py
"""

import torch
from tally import Tally, Walk
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import OneHotCategorical, ProbabilisticActor

FRAMES, BATCH, EPOCHS = 1280, 256, 10


def main():
    torch.set_num_threads(1)
    tally = Tally()
    network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    module = TensorDictModule(network, in_keys=["observation"], out_keys=["logits"])
    policy = ProbabilisticActor(module, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    collector = Collector(GymWrapper(Walk(tally)), policy, frames_per_batch=BATCH, total_frames=FRAMES)
    for batch in collector:
        for _ in range(EPOCHS):
            chosen = policy.get_dist(batch).log_prob(batch["action"])
            loss = -(chosen * batch["next", "reward"].squeeze(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tally.updates += 1
        tally.iterations += 1
    collector.shutdown()
    tally.say(FRAMES, FRAMES // BATCH * EPOCHS)


if __name__ == "__main__":
    main()
