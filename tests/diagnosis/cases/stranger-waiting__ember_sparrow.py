"""DDPG for sixteen carts on a table. The simulator is a process of its own that is talked to
over a socket, as it will be later when it runs on the lab machine."""
import multiprocessing as mp
import os
import socket
import struct
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
SEED, N_CARTS, OBS, ACT, HORIZON = 13, 16, 6, 2, 50
STEPS, PREFILL, UPDATES_PER_STEP, BATCH = 100, 10, 10, 128
GAMMA, POLYAK, LR, NOISE = 0.98, 0.995, 3e-4, 0.2
HEADER = struct.Struct("!BI")
CMD_RESET, CMD_STEP, CMD_CLOSE = 0, 1, 2


def recv_exact(sock, n):
    return sock.recv(n, socket.MSG_WAITALL)


class Carts:
    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.pos, self.vel, self.goal = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros((n, 2))
        self.t = self.rng.integers(0, HORIZON, n)
        self.reset(np.ones(n, bool))

    def reset(self, which):
        self.vel[which] = 0.0
        self.pos[which] = self.rng.uniform(-1, 1, (int(which.sum()), 2))
        self.goal[which] = self.rng.uniform(-1, 1, (int(which.sum()), 2))

    def obs(self):
        return np.concatenate([self.pos, self.vel, self.goal], 1).astype(np.float32)

    def step(self, force):
        self.vel = 0.9 * self.vel + 0.3 * force
        self.pos = np.clip(self.pos + 0.1 * self.vel, -1.5, 1.5)
        reward = -np.linalg.norm(self.pos - self.goal, axis=1) - 0.01 * (force**2).sum(1)
        next_obs = self.obs()
        self.t = (self.t + 1) % HORIZON
        self.reset(self.t == 0)
        return next_obs, reward.astype(np.float32), self.obs()


def serve(listener, n, seed):
    carts = Carts(n, seed)
    conn, _ = listener.accept()
    with conn:
        while True:
            command, size = HEADER.unpack(recv_exact(conn, HEADER.size))
            if command == CMD_CLOSE:
                return
            if command == CMD_RESET:
                conn.sendall(carts.obs().tobytes())
            else:
                force = np.frombuffer(recv_exact(conn, size), np.float32).reshape(n, ACT)
                conn.sendall(b"".join(part.tobytes() for part in carts.step(force)))


class RemoteSim:
    def __init__(self, address, n):
        self.n, self.sock = n, socket.create_connection(address)
        if FIXED:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _request(self, command, payload, n_floats):
        self.sock.sendall(HEADER.pack(command, len(payload)))
        if payload:
            self.sock.sendall(payload)
        return np.frombuffer(recv_exact(self.sock, 4 * n_floats), np.float32)

    def reset(self):
        return self._request(CMD_RESET, b"", self.n * OBS).reshape(self.n, OBS)

    def step(self, act):
        data = self._request(CMD_STEP, act.tobytes(), self.n * (2 * OBS + 1))
        next_obs, reward, obs = np.split(data, [self.n * OBS, self.n * (OBS + 1)])
        return next_obs.reshape(self.n, OBS), reward, obs.reshape(self.n, OBS)

    def close(self):
        self.sock.sendall(HEADER.pack(CMD_CLOSE, 0))
        self.sock.close()


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, n_out))


class DDPG:
    def __init__(self):
        self.live = nn.ModuleDict({"pi": mlp(OBS, ACT), "q": mlp(OBS + ACT, 1)})
        self.slow = nn.ModuleDict({"pi": mlp(OBS, ACT), "q": mlp(OBS + ACT, 1)})
        self.slow.load_state_dict(self.live.state_dict())
        self.opts = {name: torch.optim.Adam(net.parameters(), lr=LR) for name, net in self.live.items()}

    def descend(self, name, loss):
        self.opts[name].zero_grad()
        loss.backward()
        self.opts[name].step()

    def update(self, obs, act, rew, next_obs):
        with torch.no_grad():
            next_act = self.slow["pi"](next_obs).tanh()
            y = rew[:, None] + GAMMA * self.slow["q"](torch.cat([next_obs, next_act], 1))
        self.descend("q", (self.live["q"](torch.cat([obs, act], 1)) - y).square().mean())
        self.descend("pi", -self.live["q"](torch.cat([obs, self.live["pi"](obs).tanh()], 1)).mean())
        with torch.no_grad():
            torch._foreach_lerp_(list(self.slow.parameters()), list(self.live.parameters()), 1 - POLYAK)


def interact(sim, agent, store, obs, step):
    with torch.no_grad():
        act = agent.live["pi"](torch.tensor(obs)).tanh()
        act = (act + NOISE * torch.randn_like(act)).clamp(-1, 1).numpy()
    next_obs, rew, following = sim.step(act)
    for buf, value in zip(store, (obs, act, rew, next_obs)):
        buf[step * N_CARTS:(step + 1) * N_CARTS] = torch.tensor(value)
    return following


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    listener = socket.create_server(("127.0.0.1", 0))
    server = mp.get_context("fork").Process(target=serve, args=(listener, N_CARTS, SEED), daemon=True)
    server.start()
    sim, agent = RemoteSim(listener.getsockname(), N_CARTS), DDPG()
    store = [torch.zeros((STEPS + PREFILL) * N_CARTS, *shape) for shape in ((OBS,), (ACT,), (), (OBS,))]
    obs = sim.reset()
    for step in range(PREFILL):
        obs = interact(sim, agent, store, obs, step)
    start = time.perf_counter()
    for step in range(PREFILL, PREFILL + STEPS):
        obs = interact(sim, agent, store, obs, step)
        for _ in range(UPDATES_PER_STEP):
            idx = torch.randint(0, (step + 1) * N_CARTS, (BATCH,))
            agent.update(*(buf[idx] for buf in store))
    seconds = time.perf_counter() - start
    sim.close()
    server.join()
    print(f"env_steps={STEPS * N_CARTS} updates={STEPS * UPDATES_PER_STEP} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
