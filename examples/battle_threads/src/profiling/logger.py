"""The document's log files: HotLoop writes them; what only this system knows, the server's own time, is added."""

from __future__ import annotations

from pathlib import Path

from hotloop import get_global_profiler


def network_block() -> str:
    """A round trip to the server in parts.

    The server reports how long it worked on each message. The rest of the wait is WebSocket handling at both ends, the queue in
    front of the server, and the queue of our own threads for the interpreter.
    """
    summary = get_global_profiler().summary()
    calls = {name: operation["call_count"] for name, operation in summary["operations"].items()}
    seconds = {name: operation["total_time"] for name, operation in summary["operations"].items()}
    trips = calls.get("env_server_wait", 0)
    if not trips:
        return ""
    server_s = min(summary["counters"].get("server_us", 0) / 1e6, seconds["env_server_wait"])
    rows = {
        "Send": seconds["env_send"],
        "Server (its own clock)": server_s,
        "Network and queues": seconds["env_server_wait"] - server_s,
        "Parse": seconds["env_parse"],
    }
    whole = sum(rows.values())
    lines = [f"NETWORK (per round trip of {trips:,}, thread time)", "-" * 40]
    lines += [f"{name}: {value / trips * 1e3:.3f} ms ({value / whole:.1%})" for name, value in rows.items()]
    return "\n".join(lines)


def save_session_logs(name: str, folder: Path) -> tuple[Path, Path] | None:
    """`raw/NAME_TIME.json` and `reports/NAME_TIME_summary.txt` below the folder."""
    files = get_global_profiler().save_logs(name, folder)
    if files is not None and (block := network_block()):
        with files[1].open("a", encoding="utf-8") as report:
            report.write(f"\n{block}\n")
    return files
