"""League self-play at Goofspiel: the learner meets its own past, the hard opponents more often."""
import copy
import os
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"

SEED = 8
CARDS = 7
TABLES = 128
MATCHES = 70
SNAPSHOT_EVERY = 10
OBS = 3 * CARDS + 1

class Goofspiel:
    """Both players bid a card of their hand for the prize on the table, many tables at once."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.prizes = np.argsort(self.rng.random((TABLES, CARDS)), axis=1)
        self.hands = np.ones((2, TABLES, CARDS), np.float32)
        self.score = np.zeros(TABLES, np.float32)
        self.turn = 0

    def observe(self, player):
        prize = np.eye(CARDS, dtype=np.float32)[self.prizes[:, self.turn]]
        lead = (self.score if player == 0 else -self.score)[:, None] / 10
        return torch.from_numpy(np.concatenate([self.hands[player], self.hands[1 - player], prize, lead], 1))

    def step(self, bids):
        tables = np.arange(TABLES)
        for player in (0, 1):
            self.hands[player, tables, bids[player]] = 0
        gain = np.sign(bids[0] - bids[1]) * (self.prizes[:, self.turn] + 1)
        self.score += gain.astype(np.float32)
        self.turn += 1
        return self.turn == CARDS

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.mix(self.norm(x)))

class Bidder(nn.Module):
    def __init__(self, width=96, depth=3):
        super().__init__()
        self.enter = nn.Linear(OBS, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.leave = nn.Linear(width, CARDS)

    def forward(self, obs):
        logits = self.leave(self.blocks(torch.relu(self.enter(obs))))
        return logits.masked_fill(obs[:, :CARDS] == 0, -1e9)

class League:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.snapshots = []
        self.wins = []
        self.ready = {}

    def add(self, net):
        self.snapshots.append(copy.deepcopy(net.state_dict()))
        self.wins.append(0.5)

    def draw(self):
        weights = (1.02 - np.array(self.wins)) ** 2
        return int(self.rng.choice(len(weights), p=weights / weights.sum()))

    def opponent(self, index):
        if FIXED and index in self.ready:
            return self.ready[index]
        net = Bidder()
        net.load_state_dict(self.snapshots[index])
        net.eval()
        actor = torch.jit.freeze(torch.jit.trace(net, torch.ones(TABLES, OBS)))
        self.ready[index] = actor
        return actor

    def record(self, index, won):
        self.wins[index] += 0.2 * (won - self.wins[index])

def play(game, learner, opponent):
    game.reset()
    seen, bids, over = [], [], False
    while not over:
        mine, theirs = game.observe(0), game.observe(1)
        with torch.no_grad():
            bid = torch.multinomial(learner(mine).softmax(-1), 1).squeeze(-1)
            counter = torch.multinomial(opponent(theirs).softmax(-1), 1).squeeze(-1)
        seen.append(mine)
        bids.append(bid)
        over = game.step((bid.numpy(), counter.numpy()))
    return torch.stack(seen), torch.stack(bids), torch.from_numpy(np.sign(game.score))

def learn(learner, optim, seen, bids, outcome):
    adv = (outcome - outcome.mean()) / (outcome.std() + 1e-6)
    logp = learner(seen.flatten(0, 1)).log_softmax(-1)
    picked = logp.gather(-1, bids.flatten().unsqueeze(-1)).view(CARDS, TABLES)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = -(picked * adv).mean() - 0.01 * entropy
    optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
    optim.step()

def main():
    torch.manual_seed(SEED)
    game, league = Goofspiel(SEED), League(SEED)
    learner = Bidder()
    optim = torch.optim.Adam(learner.parameters(), lr=1e-3)
    league.add(learner)
    start = time.perf_counter()
    for match in range(1, MATCHES + 1):
        index = league.draw()
        seen, bids, outcome = play(game, learner, league.opponent(index))
        learn(learner, optim, seen, bids, outcome)
        league.record(index, float((outcome > 0).float().mean()))
        if match % SNAPSHOT_EVERY == 0:
            league.add(learner)
            print(f"match {match}: {len(league.snapshots)} in the league, hardest {min(league.wins):.2f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={MATCHES * CARDS * TABLES} updates={MATCHES} seconds={seconds:.3f}")

if __name__ == "__main__":
    main()
