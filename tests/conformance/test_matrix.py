"""The table of what is left out names only what there is."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.matrix import EVERYWHERE, SITES, SKIPS
from conformance.server import SERVERS


def test_every_entry_is_about_a_server_or_framework_and_a_case_that_exist() -> None:
    sources = Path(__file__).parent.glob("test_*.py")
    cases = {
        case for file in sources for case in re.findall(r'mark\.case\("(\w+)"', file.read_text())
    }
    whom = {"", *(name for site in SITES for name in site)}
    for who, case in SKIPS:
        assert who in whom
        assert case in cases


def test_every_server_serves_what_is_to_be_served_everywhere() -> None:
    assert {(kind, app) for kind in SERVERS for app in EVERYWHERE} <= {*SITES}
