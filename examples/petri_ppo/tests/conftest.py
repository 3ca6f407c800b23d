"""The example's modules are found as its scripts find them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "scripts")]

collect_ignore = [] if find_spec("torch") and find_spec("torchrl") else ["test_turbo_training.py"]


def pytest_configure(config: pytest.Config) -> None:
    """This repository turns warnings into errors; those are TorchRL's own, about TorchRL's own classes."""
    config.addinivalue_line("filterwarnings", "ignore:Creating .* which inherits from WeightUpdaterBase:DeprecationWarning")
