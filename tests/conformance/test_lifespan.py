"""The middleware is no obstacle between a server and the start and end of its application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.apps.report import WHAT_FAILS
from conformance.server import SERVERS, serving

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.client import Site

FRAMEWORKS = ("fastapi", "fastapi_protect", "starlette", "quart")
STARTS = [
    *((kind, "plain") for kind in SERVERS),
    *(("uvicorn-httptools-uvloop", app) for app in FRAMEWORKS),
    ("hypercorn", "litestar"),
]


@pytest.mark.case("lifespan_state")
def test_the_state_of_the_lifespan_reaches_the_handler(site: Site) -> None:
    assert site.connect().get("/lifespan").body == b"from the lifespan"


@pytest.mark.parametrize(("kind", "app"), STARTS)
def test_a_start_that_fails_ends_the_server(kind: str, app: str, tmp_path: Path) -> None:
    with serving(kind, app, tmp_path / "log", **{WHAT_FAILS: "startup"}) as server:
        assert server.process.wait(30) != 0, server.log()
    assert "the start fails as planned" in server.log()
