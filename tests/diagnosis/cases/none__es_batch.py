"""Evolution strategies with the whole population in one batched forward pass: a pole on a cart, in torch."""

import time

import torch


class Carts:
    def __init__(self, n, generator):
        self.n, self.generator = n, generator

    def reset(self):
        self.s = 0.1 * torch.rand(self.n, 4, generator=self.generator) - 0.05
        self.alive = torch.ones(self.n)
        return self.s

    def step(self, force):
        x, v, th, w = self.s.unbind(1)
        sin, cos = th.sin(), th.cos()
        temp = (10 * force + 0.05 * w * w * sin) / 1.1
        acc = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        v2, w2 = v + 0.02 * (temp - 0.05 * acc * cos / 1.1), w + 0.02 * acc
        self.s = torch.stack([x + 0.02 * v, v2, th + 0.02 * w, w2], 1)
        self.alive = self.alive * ((self.s[:, 0].abs() < 2.4) & (self.s[:, 2].abs() < 0.21)).float()
        return self.s, self.alive


class Population:
    def __init__(self, pairs, generator, hidden=32):
        self.pairs, self.hidden, self.generator = pairs, hidden, generator
        self.mean = torch.zeros(4 * hidden + hidden)

    def ask(self, sigma):
        self.eps = torch.randn(self.pairs, len(self.mean), generator=self.generator)
        theta = torch.cat([self.mean + sigma * self.eps, self.mean - sigma * self.eps])
        self.w1 = theta[:, : 4 * self.hidden].view(-1, 4, self.hidden)
        self.w2 = theta[:, 4 * self.hidden :].unsqueeze(-1)

    def act(self, s):
        h = torch.bmm(s[:, None], self.w1).tanh()
        return torch.bmm(h, self.w2)[:, 0, 0].tanh()

    def tell(self, fitness, sigma, lr):
        rank = fitness.argsort().argsort().float() / (len(fitness) - 1) - 0.5
        gradient = (rank[: self.pairs] - rank[self.pairs :]) @ self.eps
        self.mean = 0.995 * self.mean + lr / (2 * self.pairs * sigma) * gradient


@torch.no_grad()
def main(generations=170, pairs=256, horizon=150):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(9)
    start = time.time()
    carts, population = Carts(2 * pairs, generator), Population(pairs, generator)
    for _ in range(generations):
        population.ask(sigma=0.3)
        s, fitness = carts.reset(), torch.zeros(2 * pairs)
        for _ in range(horizon):
            s, alive = carts.step(population.act(s))
            fitness += alive
        population.tell(fitness, sigma=0.3, lr=0.5)
    print(f"env_steps={generations * horizon * 2 * pairs} updates={generations} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
