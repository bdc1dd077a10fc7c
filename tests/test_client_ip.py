"""The address of a client as a key: nobody chooses his own, and nobody has none."""

from __future__ import annotations

import logging
import time
import tracemalloc
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.asgi import client_ip

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.timeout(30)

PEER = "10.0.0.1"


def scope(*lines: bytes | str, peer: Any = (PEER, 54321)) -> dict[str, Any]:
    headers = [(b"host", b"test")]
    for line in lines:
        value = line.encode("latin-1") if isinstance(line, str) else line
        headers += [(b"x-forwarded-for", value), (b"accept", b"*/*")]
    return {"type": "http", "headers": headers, "client": peer}


# -- the peer ---------------------------------------------------------------------------


def test_without_proxies_it_is_the_peer_whatever_is_sent() -> None:
    key = client_ip()
    assert key(scope()) == PEER
    assert key(scope("1.1.1.1", "2.2.2.2")) == PEER
    assert key(scope(peer=("2001:db8::1", 1))) == "2001:db8::/64"
    assert key(scope(peer=["::ffff:10.0.0.1", 1])) == PEER


def test_a_peer_that_is_no_address_is_its_own_key() -> None:
    assert client_ip()(scope(peer=("testclient", 50000))) == "testclient"
    assert client_ip(trusted_hops=1)(scope("nonsense", peer=("testclient", 1))) == "testclient"


@pytest.mark.parametrize("peer", [None, ("", 0), ["", None], ()])
@pytest.mark.parametrize("hops", [0, 1])
def test_who_has_no_address_at_all_shares_one_key_and_that_is_logged_once(
    peer: Any, hops: int, caplog: pytest.LogCaptureFixture
) -> None:
    key = client_ip(trusted_hops=hops)
    with caplog.at_level(logging.WARNING, "sluicegate"):
        assert [key(scope(peer=peer)) for _ in range(3)] == ["unknown"] * 3
    (record,) = caplog.records
    assert f"trusted_hops={hops}" in record.getMessage()
    # A server may leave it out.
    assert key({"type": "http", "headers": []}) == "unknown"


def test_behind_a_unix_socket_the_proxy_tells() -> None:
    assert client_ip(trusted_hops=1)(scope("192.0.2.1", peer=None)) == "192.0.2.1"


# -- the proxies ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hops", "lines", "expected"),
    [
        (1, ["1.1.1.1"], "1.1.1.1"),
        (1, ["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
        (1, ["6.6.6.6", "1.1.1.1"], "1.1.1.1"),
        (1, ["6.6.6.6,\t1.1.1.1 "], "1.1.1.1"),
        (2, ["6.6.6.6, 1.1.1.1, 2.2.2.2"], "1.1.1.1"),
        (2, ["6.6.6.6, 1.1.1.1", "2.2.2.2"], "1.1.1.1"),
        (2, ["6.6.6.6", "1.1.1.1", "2.2.2.2"], "1.1.1.1"),
        (2, ["6.6.6.6", "7.7.7.7, 1.1.1.1,2.2.2.2"], "1.1.1.1"),
        (3, ["6.6.6.6, 1.1.1.1", "2.2.2.2", "3.3.3.3"], "1.1.1.1"),
        (100, [", ".join(["6.6.6.6", "1.1.1.1", *["2.2.2.2"] * 99])], "1.1.1.1"),
    ],
)
def test_it_is_the_nth_from_the_right(hops: int, lines: Sequence[str], expected: str) -> None:
    assert client_ip(trusted_hops=hops)(scope(*lines)) == expected


@pytest.mark.parametrize(
    ("hops", "lines"),
    [
        (1, []),
        (1, [""]),
        (1, ["1.1.1.1,"]),
        (1, ["1.1.1.1", ""]),
        (2, ["1.1.1.1"]),
        (2, ["1.1.1.1, , 2.2.2.2"]),
        (3, ["1.1.1.1", "2.2.2.2"]),
        (1, ["6.6.6.6, unknown"]),
        (1, ["6.6.6.6, _hidden"]),
        (1, ["6.6.6.6; 7.7.7.7"]),
        (1, ['for=6.6.6.6;proto=http, for="[2001:db8::1]:80"']),
        (1, ["1.1.1"]),
        (1, ["1.1.1.256"]),
        (1, ["01.1.1.1"]),
        (1, ["1.1.1.1/8"]),
        (1, ["1.1.1.1:"]),
        (1, ["1.1.1.1:x"]),
        (1, ["1.1.1.1:123456"]),
        (1, ["1.1.1.1:²"]),
        (1, ["1.1.1.\xb2"]),
        (1, ["1.1.1.1 2.2.2.2"]),
        (1, ["2001:db8::1::"]),
        (1, ["[2001:db8::1"]),
        (1, ["[2001:db8::1]80"]),
        (1, ["[2001:db8::1]:"]),
        (1, ["[1.1.1.1]:80"]),
        (1, ["[]"]),
        (1, ["]"]),
        (1, ["[[::1]]"]),
        (1, ["2001:db8::/32"]),
        (1, ["example.com"]),
        (1, [b"\xff\xfe\x00"]),
        (1, ["1.1.1.1\x00"]),
        (1, ["0x7f000001"]),
        (1, ["2130706433"]),
    ],
)
def test_who_does_not_come_through_the_proxies_is_the_peer(hops: int, lines: Sequence[str]) -> None:
    assert client_ip(trusted_hops=hops)(scope(*lines)) == PEER


def test_other_headers_say_nothing() -> None:
    request = scope()
    request["headers"] += [
        (b"forwarded", b"for=6.6.6.6"),
        (b"x-real-ip", b"6.6.6.6"),
        (b"x-forwarded-for-", b"6.6.6.6"),
    ]
    assert client_ip(trusted_hops=1)(request) == PEER


# -- one address, one key ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("192.0.2.1:65535", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:201", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("64:ff9b::c000:201", "192.0.2.1"),
        ("2001:db8:0:1::5", "2001:db8:0:1::/64"),
        ("2001:DB8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:1::/64"),
        ("2001:0db8:0000:0001:0000:0000:0000:0005", "2001:db8:0:1::/64"),
        ("[2001:db8:0:1::5]", "2001:db8:0:1::/64"),
        ("[2001:db8:0:1::5]:443", "2001:db8:0:1::/64"),
        ("2001:db8:0:1::5%eth0", "2001:db8:0:1::/64"),
        ("[2001:db8:0:1::5%25eth0]:443", "2001:db8:0:1::/64"),
        ("2001:db8:0:1::192.0.2.1", "2001:db8:0:1::/64"),
        ("::1", "::/64"),
    ],
)
def test_however_it_is_written(text: str, expected: str) -> None:
    assert client_ip(trusted_hops=1)(scope(f"6.6.6.6, {text}")) == expected
    assert client_ip()(scope(peer=(text, 1))) == expected


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (128, "2001:db8:1:2ab:3:4:5:6"),
        (64, "2001:db8:1:2ab::/64"),
        (56, "2001:db8:1:200::/56"),
        (48, "2001:db8:1::/48"),
        (1, "::/1"),
    ],
)
def test_as_much_of_an_ipv6_address_as_is_told(prefix: int, expected: str) -> None:
    key = client_ip(ipv6_prefix=prefix)
    assert key(scope(peer=("2001:db8:1:2ab:3:4:5:6", 1))) == expected
    assert key(scope(peer=("2001:DB8:1:2ab:3:4:5:6%zone", 1))) == expected
    assert key(scope(peer=("192.0.2.1", 1))) == "192.0.2.1"


ADDRESSES = st.ip_addresses()
# What a client can put before what the proxies add.
SPOOFED = st.lists(
    st.one_of(
        ADDRESSES.map(str),
        st.sampled_from(["", ",", " , ", "unknown", ",,,,", "[", "x" * 200, "\xff"]),
        st.text(st.characters(max_codepoint=255), max_size=30),
    ),
    max_size=6,
)


def way(address: IPv4Address | IPv6Address, how: int) -> str:
    if isinstance(address, IPv4Address):
        ways = [str(address), f"{address}:{how}", f"::ffff:{address}", f"[::FFFF:{address}]:1"]
    else:
        long = address.exploded
        ways = [str(address), long.upper(), f"[{long}]:{how}", f"[{address}]", f"{address}%en{how}"]
    return ways[how % len(ways)]


@given(
    client=ADDRESSES,
    how=st.integers(0, 100),
    spoofed=SPOOFED,
    proxies=st.lists(ADDRESSES.map(str), max_size=4),
    appends=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_what_a_client_sends_changes_nothing(
    client: IPv4Address | IPv6Address,
    how: int,
    spoofed: list[str],
    proxies: list[str],
    appends: list[bool],
) -> None:
    key = client_ip(trusted_hops=1 + len(proxies))
    lines = list(spoofed)
    # The nearest proxy is seen as the peer: each adds whom it sees.
    for address, to_the_last_line in zip([way(client, how), *proxies], appends, strict=False):
        if lines and to_the_last_line:
            lines[-1] += f", {address}"
        else:
            lines.append(address)
    alone = key(scope(", ".join([str(client), *proxies])))
    assert key(scope(*lines)) == alone
    if isinstance(client, IPv4Address):
        assert alone == str(client)
    elif "/" in alone:
        assert alone.endswith("/64")
        assert int(ip_address(alone.removesuffix("/64"))) >> 64 == int(client) >> 64
    else:
        assert int(ip_address(alone)) == int(client) & 0xFFFF_FFFF


@given(lines=st.lists(st.binary(max_size=60), max_size=5), hops=st.integers(0, 4))
def test_there_is_always_a_key(lines: list[bytes], hops: int) -> None:
    told = client_ip(trusted_hops=hops)(scope(*lines))
    assert told == PEER or ip_address(told.removesuffix("/64"))


# -- hostile ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        [b"6.6.6.6, " * 100_000],
        [b"," * 1_000_000],
        [b"6" * 1_000_000],
        [b" " * 1_000_000],
        [b"[" * 1_000_000],
        [b":" * 1_000_000],
        [b"\xff" * 1_000_000],
        [b"6.6.6.6"] * 10_000,
        [b""] * 10_000,
    ],
    ids=lambda lines: f"{len(lines)} x {lines[0][:3]!r}",
)
def test_however_much_is_sent_it_is_told_soon(lines: list[bytes]) -> None:
    key = client_ip(trusted_hops=2)
    whole = scope(*lines[:-1], lines[-1] + b",192.0.2.1,10.0.0.2")
    cut = scope(*lines)
    for request, expected in ((whole, "192.0.2.1"), (cut, None)):
        started = time.process_time()
        told = [key(request) for _ in range(20)]
        # Of a megabyte each: a fraction of what the server spends on it.
        assert time.process_time() - started < 0.2
        assert told == [expected or told[0]] * 20
        assert told[0] in {"192.0.2.1", PEER, "6.6.6.6"}


def test_long_headers_take_no_memory() -> None:
    key = client_ip(trusted_hops=1)
    tracemalloc.start()
    try:
        for number in range(20):
            assert key(scope(b"%d" % number + b"6" * 500_000)) == PEER
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
        hops = scope(b"," * 1_000_000)
        tracemalloc.reset_peak()
        assert key(hops) == PEER
        # Of a header of a megabyte there is one copy, and no list of its parts.
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_addresses_that_are_made_up_take_no_memory() -> None:
    key = client_ip()

    def ask(first: int, last: int) -> None:
        for number in range(first, last):
            key(scope(peer=(str(IPv6Address(number << 64)), 1)))

    ask(0, 4_500)
    tracemalloc.start()
    try:
        ask(4_500, 14_500)
        assert tracemalloc.get_traced_memory()[0] < 1_500_000
    finally:
        tracemalloc.stop()


# -- what cannot be ---------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 101])
def test_a_number_of_hops_that_cannot_be(value: int) -> None:
    text = rf"trusted_hops must be an integer from 0 to 100, got {value}"
    with pytest.raises(ValueError, match=text):
        client_ip(trusted_hops=value)


@pytest.mark.parametrize("value", [0, 129, -64])
def test_a_prefix_that_cannot_be(value: int) -> None:
    text = rf"ipv6_prefix must be an integer from 1 to 128, got {value}"
    with pytest.raises(ValueError, match=text):
        client_ip(ipv6_prefix=value)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
@pytest.mark.parametrize("name", ["trusted_hops", "ipv6_prefix"])
def test_what_is_no_integer(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be an integer"):
        client_ip(**{name: value})
