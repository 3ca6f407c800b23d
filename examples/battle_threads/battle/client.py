"""A battle as an environment: one WebSocket connection, one battle after another, p1's point of view.

What lives here: the client of both servers, and the process that is the server. The time of a step is three spans that leave
nothing out: `env_send`, `env_server_wait` (the server's work and the way there and back), `env_parse`. The server says in every
answer how long it worked on the message, so that its work can be told apart from the network's.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from hotloop import count, profile

from . import dex
from .settings import BadSettingsError
from .view import Mask, Observation, RefusedError, View

TIMEOUT_S = 60.0
FORMAT = "gen9customgame@@@!Team Preview"  # any team may play; the bundled server knows only one format and ignores this
NAMES = ("agent", "opponent")


class ServerGoneError(Exception):
    """The server did not start, stopped answering, or refused what was sent."""


class BattleServer:
    """The server's process. It ends when its standard input closes, so it cannot outlive this one."""

    def __init__(self, kind: str, showdown_dir: str = ".") -> None:
        here = Path(__file__).parent
        if kind == "showdown":
            command = _showdown_command(here / "showdown_server.js", Path(showdown_dir))
        else:
            command = [sys.executable, "-m", "battle.server"]
        self.process = subprocess.Popen(
            command, cwd=here.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if len(words) != 2 or words[0] != "PORT":
            self.close()
            raise ServerGoneError(
                f"the {kind} server ended before it was ready (exit code {self.process.returncode}); see above."
            )
        self.address = f"ws://127.0.0.1:{int(words[1])}"

    def close(self) -> None:
        """Close its input and wait; it has nothing to save."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self) -> BattleServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _showdown_command(script: Path, folder: Path) -> list[str]:
    node = shutil.which("node")
    if node is None:
        raise BadSettingsError("--server showdown needs Node.js, and there is no `node` on the PATH; use --server python.")
    if not (folder / "node_modules" / "pokemon-showdown").is_dir():
        raise BadSettingsError(
            f"there is no node_modules/pokemon-showdown in {folder}; run `npm install pokemon-showdown` there, or name the "
            "folder that has it with --showdown-dir."
        )
    return [node, str(script), str(folder.resolve())]


class BattleEnv:
    """One connection; it belongs to one thread at a time."""

    def __init__(self, address: str, max_turns: int, hp_reward: float) -> None:
        self.max_turns, self.hp_reward = max_turns, hp_reward
        self.turns = 0
        self._closing = ExitStack()
        try:
            # No compression, pings or proxy: both ends are one machine.
            link = connect(address, compression=None, ping_interval=None, proxy=None, open_timeout=TIMEOUT_S)
            self.socket = self._closing.enter_context(link)
        except (OSError, WebSocketException) as error:
            raise ServerGoneError(f"no battle server answers at {address} ({error}).") from None

    def close(self) -> None:
        self._closing.close()

    def reset(self, seed: int) -> tuple[Observation, Mask]:
        """A new battle; its teams and its luck follow from the seed alone."""
        with profile("env_send"):
            luck = random.Random(seed)
            start = {"formatid": FORMAT, "seed": ",".join(str(luck.randrange(1 << 16)) for _ in range(4))}
            players = [json.dumps({"name": name, "team": dex.draw_team(luck)}) for name in NAMES]
            self.view, self.turns, self.balance = View(NAMES[0]), 0, 0.0
            self._send(f">start {json.dumps(start)}\n>player p1 {players[0]}\n>player p2 {players[1]}")
        text = self._wait()
        with profile("env_parse"):
            self._read(text)
            self.balance = self.view.balance()
            return self.view.observe(), self.view.mask()

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any], Mask]:
        """Observation, reward, terminated, truncated, information, mask of the next actions."""
        with profile("env_send"):
            self._send(f">p1 {self.view.choice(action)}")
        text = self._wait()
        with profile("env_parse"):
            self._read(text)
            self.turns += 1
            view, before = self.view, self.balance
            self.balance = view.balance()
            reward = self.hp_reward * (self.balance - before)
            if view.ended:
                reward += 1.0 if view.won else -1.0
            truncated = not view.ended and self.turns >= self.max_turns
            return view.observe(), reward, view.ended, truncated, {"won": view.won}, view.mask()

    # ---- one message each way ----

    def _send(self, text: str) -> None:
        try:
            self.socket.send(text)
        except WebSocketException as error:
            raise ServerGoneError(f"the battle server closed the connection ({error}).") from None

    def _wait(self) -> str:
        with profile("env_server_wait"):
            try:
                return str(self.socket.recv(timeout=TIMEOUT_S))
            except TimeoutError:
                raise ServerGoneError(f"the battle server did not answer within {TIMEOUT_S:.0f} s.") from None
            except WebSocketException as error:
                raise ServerGoneError(f"the battle server closed the connection ({error}).") from None

    def _read(self, text: str) -> None:
        try:
            self.view.read(text)
        except RefusedError as error:
            raise ServerGoneError(f"the battle server refused a choice: {error}") from None
        count("server_us", self.view.server_us)
