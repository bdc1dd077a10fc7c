"""Websockets, which take no permit of the requests."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from conformance.apps.report import LIMIT

if TYPE_CHECKING:
    from conformance.client import Site

pytestmark = pytest.mark.case("websocket")


def open_websocket(site: Site, name: str) -> ClientConnection:
    host, port = site.address
    return connect(f"ws://{host}:{port}/ws?name={name}", proxy=None, compression=None)


def test_a_websocket_echoes_and_is_closed_by_the_client(site: Site) -> None:
    with open_websocket(site, name := site.name()) as websocket:
        for text in ("one", "two"):
            websocket.send(text)
            assert websocket.recv(30) == text
        state = site.until(name, websockets=1)
        assert state["in_flight"] == 0
        assert state["outside"] == name
    site.until(name, websockets=0, is_over=True)


def test_a_websocket_that_the_handler_closes(site: Site) -> None:
    with open_websocket(site, name := site.name()) as websocket:
        websocket.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4000
    site.until(name, websockets=0, is_over=True)


def test_a_websocket_whose_client_vanishes(site: Site) -> None:
    with open_websocket(site, name := site.name()) as websocket:
        site.until(name, websockets=1)
        websocket.socket.shutdown(socket.SHUT_RDWR)
        site.until(name, websockets=0, is_over=True)


def test_a_websocket_is_accepted_while_all_requests_are_refused(site: Site) -> None:
    held = [site.hold()[1] for _ in range(LIMIT)]
    with open_websocket(site, site.name()) as websocket:
        websocket.send("one")
        assert websocket.recv(30) == "one"
    site.release(*held)


def test_a_websocket_over_the_cap_is_refused_before_it_is_accepted(site: Site) -> None:
    names = [site.name() for _ in range(LIMIT)]
    with ExitStack() as open_ones:
        for name in names:
            open_ones.enter_context(open_websocket(site, name))
        site.until(websockets=LIMIT)
        extra = site.name()
        with pytest.raises(InvalidStatus) as refused, open_websocket(site, extra):
            pass
        assert refused.value.response.status_code in {403, 503}
        assert "started" not in site.until(extra, is_over=True)
        assert site.connect().get("/echo").status == 200
    for name in names:
        site.until(name, websockets=0, is_over=True)
    with open_websocket(site, site.name()) as websocket:
        websocket.send("one")
        assert websocket.recv(30) == "one"
