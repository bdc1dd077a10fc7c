"""Starts each server once, and leaves out what the table leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.client import Site
from conformance.matrix import SITES, SKIPS
from conformance.server import Server, serving

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(name): the case in the table of what is left out")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or "serving_site" not in callspec.params:
            continue
        cases = [name for marker in item.iter_markers("case") for name in marker.args]
        for who in ("", *callspec.params["serving_site"]):
            for name in cases:
                if reason := SKIPS.get((who, name)):
                    item.add_marker(pytest.mark.skip(reason=f"{who} {reason}"))


@pytest.fixture(scope="session", params=SITES, ids="/".join)
def serving_site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Site]]:
    kind, app = request.param
    with serving(kind, app, tmp_path_factory.mktemp("server") / "log") as server:
        server.wait_until_it_listens()
        site = Site(kind, app, server.address)
        yield server, site
        site.hang_up()


@pytest.fixture
def site(request: pytest.FixtureRequest, serving_site: tuple[Server, Site]) -> Iterator[Site]:
    """Give a server to a test, and look that the test leaves nothing behind."""
    server, site = serving_site
    request.node.add_report_section("setup", "server", f"{site.kind} {server.address}")
    try:
        yield site
        try:
            site.until(in_flight=0, waiting=0, running=0, websockets=0)
        finally:
            site.release_all()
            site.close()
    finally:
        assert server.process.poll() is None, server.log()
    assert not server.faults()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log of the server with a failure."""
    report = yield
    funcargs = getattr(item, "funcargs", {})
    if report.failed and "serving_site" in funcargs:
        log = funcargs["serving_site"][0].log()
        report.sections.append(("log of the server", log[-8000:]))
    return report
