"""The settings: defaults here, then the file, then the flags. Every field is a key of the file and a flag of the same name."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

DEFAULT_FILE = Path(__file__).parent.parent / "config" / "train_config.yml"


class BadSettingsError(Exception):
    """One sentence about what is wrong, for the user."""


def _setting(
    default: Any, help: str, choices: tuple[str, ...] = (), least: float | None = None, most: float | None = None
) -> Any:
    return field(default=default, metadata={"help": help, "choices": choices, "least": least, "most": most})


@dataclass(frozen=True, slots=True)
class Settings:
    device: str = _setting("auto", "cpu, cuda, cuda:1 …; auto takes cuda where there is one")
    episodes: int = _setting(2000, "battles to play", least=1)
    seed: int = _setting(1, "of the networks, the teams, the luck and the choices: the same seed plays the same run", least=0)
    threads: int = _setting(8, "battles at once, each with its own connection and thread", least=1, most=256)
    torch_threads: int = _setting(1, "threads inside torch", least=1)
    battles_per_update: int = _setting(64, "battles played between two updates", least=1)
    server: str = _setting("python", "the bundled server, or the real simulator from npm", choices=("python", "showdown"))
    showdown_dir: str = _setting(".", "folder with node_modules/pokemon-showdown, for --server showdown")
    max_turns: int = _setting(100, "choices after which a battle is cut off", least=1)
    hp_reward: float = _setting(0.5, "reward for a whole team's hit points; a win is 1, a defeat -1", least=0)
    hidden: int = _setting(64, "units in each of the two hidden layers", least=1)
    learning_rate: float = _setting(3e-3, "of Adam", least=0)
    gamma: float = _setting(0.99, "discount", least=0, most=1)
    gae_lambda: float = _setting(0.95, "of the advantage estimate", least=0, most=1)
    clip: float = _setting(0.2, "how far PPO lets a probability move, as a ratio", least=0)
    entropy: float = _setting(0.01, "weight of the entropy bonus", least=0)
    epochs: int = _setting(4, "passes over the battles of an update", least=1)
    batch_size: int = _setting(256, "transitions in a gradient step", least=1)
    buffer_capacity: int = _setting(800000, "transitions an update may use; the latest are kept", least=1)
    profile: bool = _setting(False, "record with HotLoop; print and save the reports")
    profile_name: str = _setting("session", "name of the session and of its files")
    out: str = _setting(".", "everything is written below this folder")
    curve: str = _setting("", "save the win rate over the run as this PNG, with a random player's as baseline")


def read_settings(arguments: list[str] | None = None) -> Settings:
    """Settings from the command line and the file it names."""
    parser = argparse.ArgumentParser(description="Learn to win turn-based battles that a server in another process referees.")
    parser.add_argument("--config", default=str(DEFAULT_FILE), help="YAML file with any of the keys below; flags win over it")
    for f in fields(Settings):
        flag, text = "--" + f.name.replace("_", "-"), f.metadata["help"]
        if f.type == "bool":
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            parser.add_argument(flag, metavar=f.name.upper(), default=None, help=f"{text} (default: {f.default or 'none'})")
    flags = vars(parser.parse_args(arguments))
    path = flags.pop("config")
    values = {key: _checked(f"{key} in {path}", key, value) for key, value in read_file(Path(path)).items()}
    for key, value in flags.items():
        if value is not None:
            values[key] = _checked("--" + key.replace("_", "-"), key, value if isinstance(value, bool) else _parsed(key, value))
    return Settings(**values)


def read_file(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise BadSettingsError(f"the settings file {path} cannot be read ({reason}); name another with --config.") from None
    except yaml.YAMLError as error:
        raise BadSettingsError(f"{path} is not YAML ({' '.join(str(error).split())[:120]}).") from None
    if not isinstance(data or {}, dict):
        raise BadSettingsError(f"{path} must hold `key: value` lines.")
    known = {f.name for f in fields(Settings)}
    unknown = [str(key) for key in data or {} if key not in known]
    if unknown:
        raise BadSettingsError(f"{path} has unknown settings: {', '.join(unknown)}; known are {', '.join(sorted(known))}.")
    return data or {}


def _parsed(key: str, text: str) -> Any:
    """A flag's text as a number, where the setting is one; left alone if it is none, `_checked` will say so."""
    kind = {"int": int, "float": float}.get(_field(key).type, str)
    try:
        return kind(text)
    except ValueError:
        return text


def _checked(where: str, key: str, value: Any) -> Any:
    f = _field(key)
    kinds = {"int": int, "float": (int, float), "str": str, "bool": bool}[f.type]
    least, most, choices = (f.metadata[name] for name in ("least", "most", "choices"))
    if not isinstance(value, kinds) or (isinstance(value, bool) and f.type != "bool"):
        raise BadSettingsError(f"{where} must be of type {f.type}, not {value!r}.")
    if choices and value not in choices:
        raise BadSettingsError(f"{where} must be one of {', '.join(choices)}, not {value!r}.")
    if (least is not None and not value >= least) or (most is not None and not value <= most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise BadSettingsError(f"{where} must be {limits}, not {value!r}.")
    return value


def _field(key: str) -> Any:
    return next(f for f in fields(Settings) if f.name == key)
