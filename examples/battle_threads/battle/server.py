"""The bundled battle server: a process of its own, on the loopback interface, at a free port.

    python -m battle.server        prints `PORT 40123` and serves until its standard input closes

Every connection fights one battle after another. A message is some lines of the simulator's input language:
    >start {"formatid": …, "seed": …}      >player p1 {"name": …, "team": […]}      >p1 move 1      >p1 switch 2
and every message gets one answer: `|server|MICROSECONDS`, how long the rules took, then the simulator's lines.
`showdown_server.js` is the same with the real simulator behind it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from .rules import BadChoiceError, Battle


class Table:
    """What one connection is playing."""

    def __init__(self) -> None:
        self.battle: Battle | None = None

    def answer(self, message: str) -> list[str]:
        try:
            if message.startswith(">start "):
                self.battle = self._seat(message)
                return self.battle.begin()
            verb, _, choice = message.partition(" ")
            if verb != ">p1" or self.battle is None:
                raise BadChoiceError("a battle begins with >start and two >player lines; then >p1 chooses")
            return self.battle.play(choice)
        except BadChoiceError as error:
            return [f"|error|[Invalid choice] {error}"]
        except (ValueError, RecursionError):
            return ["|error|[Invalid choice] this is not JSON"]

    @staticmethod
    def _seat(message: str) -> Battle:
        parts: dict[str, dict[str, Any]] = {"start": {}, "p1": {}, "p2": {}}
        for line in message.splitlines():
            verb, _, rest = line.partition(" ")
            name, _, data = rest.partition(" ") if verb == ">player" else (verb[1:], "", rest)
            value = json.loads(data)
            if name not in parts or not isinstance(value, dict):
                raise BadChoiceError(f"{line[:20]!r} is neither >start nor >player p1 or p2 with an object")
            parts[name] = value
        return Battle(str(parts["start"].get("seed", "")), parts["p1"], parts["p2"])


async def fight(connection: ServerConnection) -> None:
    table = Table()
    try:
        async for message in connection:
            began_ns = time.perf_counter_ns()
            lines = table.answer(message if isinstance(message, str) else "")
            took_us = (time.perf_counter_ns() - began_ns) // 1000
            await connection.send("\n".join([f"|server|{took_us}", *lines]))
    except ConnectionClosed:
        pass  # the client went away in the middle of a battle; nothing is kept


async def main() -> None:
    # No compression and no pings: both ends are one machine.
    async with serve(fight, "127.0.0.1", 0, compression=None, ping_interval=None, max_size=1 << 16) as server:
        print("PORT", next(iter(server.sockets)).getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.buffer.read)  # whoever started us holds the other end, and may be killed


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass  # Ctrl-C reaches the whole foreground group; the trainer says what there is to say
