"""The address of a client as a key, of which nobody can choose another."""

from __future__ import annotations

import logging
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate._asgi_types import Scope

logger = logging.getLogger("sluicegate.asgi")

_FIELD: Final = b"x-forwarded-for"
_MOST_HOPS: Final = 100
_IPV4_BITS: Final = 32
_IPV6_BITS: Final = 128
# Longer than an IPv6 address with brackets, zone and port is: nothing is parsed of it.
_LONGEST: Final = 100
_LONGEST_PORT: Final = 5
_MOST_KEPT: Final = 4096
# RFC 6052: the bits before an IPv4 address behind a translator. All have the same /64.
_NAT64: Final = int(IPv6Address("64:ff9b::")) >> _IPV4_BITS
_UNKNOWN: Final = "unknown"


def client_ip(*, trusted_hops: int = 0, ipv6_prefix: int = 64) -> Callable[[Scope], str]:
    """Return a function that tells the address of the client of a request, to be a key.

    `RateLimitMiddleware(app, bucket=bucket, key=client_ip(trusted_hops=1))`.

    With `trusted_hops=0` it is the address that the server names as the peer. Behind proxies that
    is the nearest one of them, for all clients alike. Each proxy adds the address of whoever
    connected to it to the right end of `X-Forwarded-For`; what stands further to the left was sent
    by the client, who can write what he likes. So with n trusted proxies the n-th address from the
    right is the client, all lines of the header taken together in their order; empty places count.

    No client can choose his key or be without one, as long as he can reach the service only through
    these n proxies, and each of them adds to the header. If there are fewer addresses, or there is
    none at that place, the request has not come that way, and its key is the peer. If the server
    names no peer either, as behind a Unix socket, it is `"unknown"`, which all those share; that is
    logged once.

    The same address gives the same key however it is written: with a port or without, with brackets
    or a zone, in capitals, with or without its zeros, as IPv4 mapped into IPv6 or translated
    (64:ff9b::/96). Who has IPv6 has a whole network, mostly a /64, and could be somebody else in
    each request, so that the network is the key: `2001:db8:0:1::/64`. A peer that is no IP address
    at all is its own key, as the server writes it.

    The header `Forwarded` (RFC 7239) is not read: let the proxies write `X-Forwarded-For`. Where
    the server itself puts the client in the place of the peer, as uvicorn does for the proxies in
    `--forwarded-allow-ips`, leave `trusted_hops` at 0, and do not tell it to trust `*`: then the
    client chooses. No names are looked up.

    Args:
        trusted_hops: How many proxies there are between the clients and this service, from 0 to
            100, of which each adds an address.
        ipv6_prefix: How many bits of an IPv6 address are the key, from 1 to 128. Fewer, such as 56
            or 48, if clients have larger networks.

    Raises:
        ValueError: If an argument is out of its range.
        TypeError: If an argument is not an integer.
    """
    _check("trusted_hops", trusted_hops, 0, _MOST_HOPS)
    _check("ipv6_prefix", ipv6_prefix, 1, _IPV6_BITS)
    is_told = False

    # Kept for each prefix by itself: of one argument it is found in half the time.
    key_of = lru_cache(_MOST_KEPT)(lambda text: _key(text, ipv6_prefix))

    def peer(scope: Scope) -> str:
        client = scope.get("client")
        if client:
            address: str = client[0]
            if address:
                return key_of(address) or address
        nonlocal is_told
        if not is_told:
            is_told = True
            logger.warning(
                "client_ip(trusted_hops=%d) finds no address: such requests share the key %r; "
                "behind a proxy on a Unix socket, set trusted_hops",
                trusted_hops,
                _UNKNOWN,
            )
        return _UNKNOWN

    if not trusted_hops:
        return peer

    def forwarded(scope: Scope) -> str:
        lines = [value for name, value in scope["headers"] if name == _FIELD]
        place = _from_the_right(lines, trusted_hops)
        if place is not None and len(place) <= _LONGEST:
            key = key_of(place.decode("latin-1"))
            if key is not None:
                return key
        return peer(scope)

    return forwarded


def _from_the_right(lines: list[bytes], place: int) -> bytes | None:
    for line in reversed(lines):
        # However long it is, no more is taken apart than there are proxies.
        parts = line.rsplit(b",", place)
        if len(parts) >= place:
            return parts[-place]
        place -= len(parts)
    return None


def _key(text: str, ipv6_prefix: int) -> str | None:
    """Return the key of an address, or `None` if it is none."""
    address = _address(text.strip(" \t"))
    if address is None:
        return None
    if isinstance(address, IPv4Address):
        return str(address)
    # Without its zone, which is a network card of ours.
    rest = _IPV6_BITS - ipv6_prefix
    network = IPv6Address(int(address) >> rest << rest)
    return f"{network}/{ipv6_prefix}" if rest else str(network)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    if text.startswith("["):
        host, end, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if rest else "0"
        is_right = bool(end) and ":" in host and (not rest or rest[0] == ":")
    else:
        host, port, is_right = text, "0", True
        if text.count(":") == 1:
            host, _, port = text.partition(":")
    if not is_right or not (port.isascii() and port.isdigit() and len(port) <= _LONGEST_PORT):
        return None
    try:
        if ":" not in host:
            return IPv4Address(host)
        address = IPv6Address(host)
    except ValueError:
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    bits = int(address)
    if bits >> _IPV4_BITS == _NAT64:
        return IPv4Address(bits & (1 << _IPV4_BITS) - 1)
    return address


def _check(name: str, value: object, least: int, most: int) -> None:
    text = f"{name} must be an integer from {least} to {most}, got {value!r:.100}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(text)
    if not least <= value <= most:
        raise ValueError(text)
