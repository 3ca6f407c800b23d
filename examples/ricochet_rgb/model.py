"""The networks: a ConvLSTM or a plain convolutional net, and the policy with its value on top of either.

What lives here: everything with weights. Observations come as bytes, (steps, envs, channels, height, width): one step while
collecting, a whole rollout while learning, through the same code. `keep` is 0 where a new episode began, so that nothing is
remembered across it, and 1 elsewhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from hotloop import profile


def _halvings(size: int, most: int = 16) -> int:
    """How many strided layers bring a picture down to a map of at most `most` cells a side."""
    return max(0, math.ceil(math.log2(size / most)))


def _encoder(channels: int, hidden: int, halvings: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(max(2, halvings)):
        layers += [nn.Conv2d(channels if i == 0 else hidden, hidden, 3, 2 if i < halvings else 1, 1), nn.ReLU()]
    return nn.Sequential(*layers)


def _after(size: int, halvings: int) -> int:
    for _ in range(halvings):
        size = (size + 1) // 2
    return size


def _widen(net: nn.Module) -> None:
    """Weights large enough that what is seen gets through to the far end from the start."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)


class ConvLSTMNet(nn.Module):
    """Encoder, a stack of ConvLSTM layers that see the encoded picture again at every layer and tick, pooling, projection.

    The state is one tensor (layers, 2, envs, hidden, height, width): output and memory of each layer.
    """

    def __init__(self, shape: tuple[int, int, int], hidden: int, layers: int, ticks: int, features: int, map_size: int) -> None:
        super().__init__()
        channels, height, width = shape
        halvings = _halvings(height, map_size)
        self.state_shape = (layers, 2, hidden, _after(height, halvings), _after(width, halvings))
        self.ticks = ticks
        border = torch.ones(1, 1, height, width)
        border[..., 1:-1, 1:-1] = 0
        self.register_buffer("border", border)
        self.encoder = _encoder(channels + 1, hidden, halvings)
        self.cells = nn.ModuleList(nn.Conv2d(3 * hidden, 4 * hidden, 3, padding=1) for _ in range(layers))
        self.skip = nn.Conv2d(hidden, hidden, 1)
        places = self.state_shape[3] * self.state_shape[4]
        self.projection = nn.Sequential(nn.Linear(hidden * (places + 1), features), nn.ReLU())
        _widen(self)

    def initial_state(self, n_envs: int) -> Tensor:
        layers, two, *rest = self.state_shape
        return self.border.new_zeros(layers, two, n_envs, *rest)

    def forward(self, observations: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        with profile("convlstm_forward_pass", track_memory=True):
            steps, envs = observations.shape[:2]
            with profile("convlstm_boundary_padding"):
                pictures = observations.flatten(0, 1).float() / 255
                padded = torch.cat([pictures, self.border.expand(len(pictures), -1, -1, -1)], 1)
            with profile("convlstm_conv_encoder"):
                encoded = self.encoder(padded)
            with profile("convlstm_layers"):
                outputs, state = self._run_layers(encoded.unflatten(0, (steps, envs)), state, keep)
            with profile("convlstm_skip_connection"):
                joined = outputs + self.skip(encoded)
            with profile("convlstm_global_pooling"):
                pooled = joined.mean((2, 3))
            with profile("convlstm_projection"):
                features = self.projection(torch.cat([pooled, joined.flatten(1)], 1)).unflatten(0, (steps, envs))
        return features, state

    def _run_layers(self, encoded: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        output, memory = list(state[:, 0]), list(state[:, 1])
        tops = []
        for t, seen in enumerate(encoded):
            if t > 0:  # the policy has seen to the first step
                mask = keep[t].view(-1, 1, 1, 1)
                output, memory = [h * mask for h in output], [c * mask for c in memory]
            for _ in range(self.ticks):
                below = output[-1]  # the top layer speaks to the bottom one at the next tick
                for i, cell in enumerate(self.cells):
                    into, forget, out, new = cell(torch.cat([seen, below, output[i]], 1)).chunk(4, 1)
                    memory[i] = torch.sigmoid(forget) * memory[i] + torch.sigmoid(into) * torch.tanh(new)
                    below = output[i] = torch.sigmoid(out) * torch.tanh(memory[i])
            tops.append(output[-1])
        return torch.cat(tops), torch.stack([torch.stack(output), torch.stack(memory)], 1)


class ConvNet(nn.Module):
    """Without memory: the same encoder, one more convolution, projection. Its state is empty."""

    def __init__(self, shape: tuple[int, int, int], hidden: int, features: int, map_size: int) -> None:
        super().__init__()
        channels, height, width = shape
        halvings = _halvings(height, map_size)
        places = _after(height, halvings) * _after(width, halvings)
        self.encoder = nn.Sequential(*_encoder(channels, hidden, halvings), nn.Conv2d(hidden, hidden, 3, padding=1), nn.ReLU())
        self.projection = nn.Sequential(nn.Linear(hidden * places, features), nn.ReLU())
        _widen(self)

    def initial_state(self, n_envs: int) -> Tensor:
        return self.projection[0].weight.new_zeros(0, 2, n_envs, 1, 1, 1)

    def forward(self, observations: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        with profile("conv_forward_pass", track_memory=True):
            encoded = self.encoder(observations.flatten(0, 1).float() / 255)
            return self.projection(encoded.flatten(1)).unflatten(0, observations.shape[:2]), state


class Policy(nn.Module):
    """Action probabilities and the value of the state. Spans say `recurrent_policy_…` where the network remembers."""

    def __init__(self, net: ConvLSTMNet | ConvNet, features: int, n_actions: int) -> None:
        super().__init__()
        self.net = net
        self.actor, self.critic = nn.Linear(features, n_actions), nn.Linear(features, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)
        nn.init.zeros_(self.actor.bias)
        self.spans = "recurrent_policy" if isinstance(net, ConvLSTMNet) else "policy"

    def forward(self, observations: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step of all envs: (actions, their log-probabilities, values, next state)."""
        with profile(f"{self.spans}_forward"):
            dist, value, state = self._judge(observations[None], state, keep[None])
            with profile(f"{self.spans}_action_sampling"):
                action = dist.sample()
                log_prob = dist.log_prob(action)
        return action[0], log_prob[0], value[0], state

    def evaluate_actions(
        self, observations: Tensor, state: Tensor, keep: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Whole rollouts again, with gradients: (log-probabilities, entropies, values), each (steps, envs)."""
        with profile(f"{self.spans}_evaluate_actions"):
            dist, value, _ = self._judge(observations, state, keep)
            with profile(f"{self.spans}_log_prob"):
                return dist.log_prob(actions), dist.entropy(), value

    def _judge(self, observations: Tensor, state: Tensor, keep: Tensor) -> tuple[Categorical, Tensor, Tensor]:
        with profile(f"{self.spans}_get_hidden_states"):
            state = state * keep[0].view(1, 1, -1, 1, 1, 1)
        features, state = self.net(observations, state, keep)
        with profile(f"{self.spans}_action_value"):
            logits, value = self.actor(features), self.critic(features).squeeze(-1)
        with profile(f"{self.spans}_action_dist"):
            dist = Categorical(logits=logits, validate_args=False)
        return dist, value, state
