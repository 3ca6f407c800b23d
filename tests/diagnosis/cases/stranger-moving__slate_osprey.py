"""Rovers on procedurally sculpted terrain, many worlds per tensor, trained with TorchRL's PPO."""
import os
import time

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import Bounded, Categorical, Composite, LazyTensorStorage, ReplayBuffer
from torchrl.data import SamplerWithoutReplacement, Unbounded
from torchrl.envs import EnvBase
from torchrl.modules import IndependentNormal, NormalParamExtractor, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

FIXED = os.environ.get("FIXED") == "1"

WORLDS, STEPS, SIDE = 32, 32, 80
ITERATIONS, EPOCHS, MINIBATCH = 12, 4, 128
KEYS = ("observation",) if FIXED else ("observation", "relief")


class CraterField(EnvBase):
    """Every world holds its own height map; a rover has to reach a beacon across it."""

    def __init__(self, worlds, side, horizon=48, seed=0):
        super().__init__(device="cpu", batch_size=[worlds])
        self.worlds, self.side, self.horizon = worlds, side, horizon
        ring = torch.linspace(-0.12, 0.12, 5)
        self.offsets = torch.cartesian_prod(ring, ring)
        self.cross = 0.02 * torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        self.relief = torch.zeros(worlds, side, side)
        self.pos, self.vel, self.beacon = (torch.zeros(worlds, 2) for _ in range(3))
        self.age = torch.zeros(worlds, 1)
        shapes = {"observation": (worlds, 31), "relief": (worlds, side, side)}
        self.observation_spec = Composite({k: Unbounded(shape=shapes[k]) for k in KEYS}, shape=(worlds,))
        self.action_spec = Bounded(low=-1.0, high=1.0, shape=(worlds, 2))
        self.reward_spec = Unbounded(shape=(worlds, 1))
        self.done_spec = Categorical(2, dtype=torch.bool, shape=(worlds, 1))
        self._set_seed(seed)

    def _set_seed(self, seed):
        self.rng = torch.Generator().manual_seed(seed)

    def _sculpt(self, count):
        relief = 0.0
        for cells, height in ((7, 1.0), (21, 0.2)):
            coarse = height * torch.randn(count, 1, cells, cells, generator=self.rng)
            relief = relief + F.interpolate(coarse, size=(self.side,) * 2, mode="bilinear", align_corners=True)
        return relief.squeeze(1)

    def _heights(self, points):
        out = F.grid_sample(self.relief.unsqueeze(1), points.unsqueeze(2), align_corners=True)
        return out.view(self.worlds, -1)

    def _slope(self):
        h = self._heights(self.pos.unsqueeze(1) + self.cross)
        return torch.stack((h[:, 0] - h[:, 1], h[:, 2] - h[:, 3]), dim=-1)

    def _view(self):
        patch = self._heights(self.pos.unsqueeze(1) + self.offsets)
        obs = torch.cat((patch - patch[:, 12:13], self.vel * 20, self.pos, self.beacon - self.pos), dim=-1)
        full = {"observation": obs, "relief": self.relief}
        return {k: full[k] for k in KEYS}

    def _pack(self, done, **extra):
        entries = {**self._view(), "done": done, "terminated": done.clone(), **extra}
        return TensorDict(entries, batch_size=self.batch_size, device=self.device)

    def _reset(self, tensordict=None, **kwargs):
        if tensordict is not None and "_reset" in tensordict.keys():
            ids = tensordict["_reset"].view(-1).nonzero().squeeze(-1)
        else:
            ids = torch.arange(self.worlds)
        n = len(ids)
        self.relief = self.relief.index_copy(0, ids, self._sculpt(n))
        self.pos = self.pos.index_copy(0, ids, torch.rand(n, 2, generator=self.rng) * 1.6 - 0.8)
        self.beacon = self.beacon.index_copy(0, ids, torch.rand(n, 2, generator=self.rng) * 1.6 - 0.8)
        self.vel = self.vel.index_fill(0, ids, 0.0)
        self.age = self.age.index_fill(0, ids, 0.0)
        return self._pack(torch.zeros(self.worlds, 1, dtype=torch.bool))

    def _step(self, tensordict):
        thrust = tensordict["action"].clamp(-1.0, 1.0)
        before = (self.beacon - self.pos).norm(dim=-1, keepdim=True)
        self.vel = 0.9 * self.vel + 0.012 * thrust - 0.01 * self._slope()
        self.pos = (self.pos + self.vel).clamp(-0.95, 0.95)
        self.age = self.age + 1
        after = (self.beacon - self.pos).norm(dim=-1, keepdim=True)
        arrived = after < 0.1
        reward = 10.0 * (before - 0.99 * after) + 5.0 * arrived.float()
        return self._pack(arrived | (self.age >= self.horizon), reward=reward)


def mlp(out):
    return [nn.Linear(31, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out)]


def optimise(data, gae, loss_module, optim, buffer):
    with torch.no_grad():
        gae(data)
    buffer.extend(data.reshape(-1))
    updates = 0
    for _ in range(EPOCHS * (data.numel() // MINIBATCH)):
        losses = loss_module(buffer.sample())
        total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
        total.backward()
        torch.nn.utils.clip_grad_norm_(loss_module.parameters(), 0.5)
        optim.step()
        optim.zero_grad()
        updates += 1
    return updates


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    env = CraterField(WORLDS, SIDE, seed=1)
    net = nn.Sequential(*mlp(4), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"], spec=env.action_spec_unbatched,
        distribution_class=IndependentNormal, return_log_prob=True,
    )
    critic = ValueOperator(nn.Sequential(*mlp(1)), in_keys=["observation"])
    gae = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=True)
    loss_module = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=1e-3)
    optim = torch.optim.Adam(loss_module.parameters(), lr=3e-4)
    frames = WORLDS * STEPS
    collector = Collector(env, actor, frames_per_batch=frames, total_frames=ITERATIONS * frames, device="cpu")
    sampler = SamplerWithoutReplacement()
    buffer = ReplayBuffer(storage=LazyTensorStorage(frames), sampler=sampler, batch_size=MINIBATCH)

    env_steps = updates = 0
    start = time.perf_counter()
    for data in collector:
        env_steps += data.numel()
        reward = data["next", "reward"].mean().item()
        updates += optimise(data, gae, loss_module, optim, buffer)
    seconds = time.perf_counter() - start

    collector.shutdown()
    print(f"last_mean_reward={reward:.4f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
