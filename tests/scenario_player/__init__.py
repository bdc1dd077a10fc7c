"""Plays step scenarios through the extension, on event loops that run only when told to.

The format is described in `scenarios/README.md`; `scenario/` has the same players in Rust.
"""

from __future__ import annotations

from scenario_player.checks import ScenarioError
from scenario_player.format import Scenario, load
from scenario_player.player import play

__all__ = ["Scenario", "ScenarioError", "load", "play"]
