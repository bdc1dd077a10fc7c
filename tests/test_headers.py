"""What headers say, whoever writes them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import Criticality, Deadline, ManualClock, context
from sluicegate.context import Headers, Received
from sluicegate.testing import use_clock

HEADERS = Headers()
GRPC = Headers(deadline_in=("grpc-timeout",), deadline_out="grpc-timeout")
DEADLINE, ENVOY, CRITICALITY = (
    b"x-request-timeout-ms",
    b"x-envoy-expected-rq-timeout-ms",
    b"x-criticality",
)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"250", 0.25),
        (b"1", 0.001),
        (b"0", 0.0),
        (b"000", 0.0),
        (b" 250\t", 0.25),
        (b"000000250", 0.25),
        (b"60000", 60.0),
        (b"60001", 60.0),
        (b"999999999", 60.0),
        (b"300, 200,500", 0.2),
    ],
)
def test_a_deadline(value: bytes, seconds: float) -> None:
    expected = Received(deadline=seconds)
    assert HEADERS.read([(DEADLINE, value)]) == expected
    assert HEADERS.read([(ENVOY, value)], trusted=True) == expected
    assert HEADERS.read({"X-Request-Timeout-Ms": value.decode()}) == expected
    assert HEADERS.read([("X-Request-Timeout-MS", value.decode())]) == expected
    assert HEADERS.read(iter([(DEADLINE, value)])) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "1_000",
        "0x10",
        "nan",
        "inf",
        "-inf",
        "250ms",
        "1 2",
        "1\n",
        "1\x00",
        "1234567890",
        "9" * 400,
        "0" * 5000 + "1",
        "\u0661",  # a digit for int(), and for many a regular expression
        "\xb2",
        "\uff11",
        "\ud800",
    ],
)
def test_a_deadline_that_says_nothing(value: str) -> None:
    assert HEADERS.read({"x-request-timeout-ms": value}) == Received(malformed=1)
    raw = value.encode("utf-8", "surrogatepass")
    assert HEADERS.read([(DEADLINE, raw)]) == Received(malformed=1)
    both = HEADERS.read([(DEADLINE, raw), (ENVOY, b"70")])
    assert both == Received(deadline=0.07, malformed=1)


def test_the_shortest_counts_wherever_it_stands() -> None:
    pairs = [(ENVOY, b"400"), (DEADLINE, b"300"), (DEADLINE, b"600"), (b"other", b"1")]
    assert HEADERS.read(pairs).deadline == 0.3
    assert HEADERS.read(pairs[::-1]).deadline == 0.3
    assert HEADERS.read([]) == Received(None, None, 0)
    assert HEADERS.read({}) == Received()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1H", 60.0),
        ("1M", 60.0),
        ("2S", 2.0),
        ("250m", 0.25),
        ("250000u", 0.25),
        ("99999999n", 0.099999999),
        ("99999999H", 60.0),
        ("5n", 0.001),
        ("0n", 0.0),
        ("0H", 0.0),
    ],
)
def test_as_grpc_writes_it(value: str, seconds: float) -> None:
    received = GRPC.read({"grpc-timeout": value})
    assert received.deadline == pytest.approx(seconds)
    assert received.malformed == 0


@pytest.mark.parametrize("value", ["1", "1s", "1h", "-1S", "1.5S", "123456789n", "S", "1 S", "1SS"])
def test_what_grpc_does_not_write(value: str) -> None:
    assert GRPC.read({"grpc-timeout": value}) == Received(malformed=1)
    assert HEADERS.read({"grpc-timeout": "1S"}) == Received()
    assert HEADERS.read({"x-request-timeout-ms": "1S"}) == Received(malformed=1)


@pytest.mark.parametrize("level", Criticality)
def test_a_criticality(level: Criticality) -> None:
    name = level.name
    believed = min(level, Criticality.CRITICAL)
    for value in (name, name.lower(), name.lower().replace("_", "-"), name.title(), f" {name} "):
        assert HEADERS.read({"x-criticality": value}).criticality is believed
        got = HEADERS.read([(CRITICALITY, value.encode())], trusted=True)
        assert got == Received(criticality=level)


@pytest.mark.parametrize(
    "value",
    ["", "2", "URGENT", "CRITICAL PLUS", "CRITICAL_PLUS_PLUS", "cr\u0131t\u0131cal", "A" * 999],
)
def test_a_criticality_that_says_nothing(value: str) -> None:
    assert HEADERS.read({"x-criticality": value}) == Received(malformed=1)
    assert HEADERS.read([(CRITICALITY, value.encode())], trusted=True) == Received(malformed=1)


def test_the_least_criticality_counts() -> None:
    pairs = [(CRITICALITY, b"CRITICAL_PLUS"), (CRITICALITY, b"sheddable, CRITICAL")]
    assert HEADERS.read(pairs, trusted=True).criticality is Criticality.SHEDDABLE


pairs = st.lists(
    st.tuples(
        st.sampled_from([DEADLINE, ENVOY, CRITICALITY, b"host", b"grpc-timeout", b""]),
        st.one_of(
            st.binary(max_size=80),
            st.integers(-(10**12), 10**12).map(lambda number: str(number).encode()),
            st.sampled_from([level.name.lower().encode() for level in Criticality]),
            st.from_regex(rb"\A[ ,0-9a-zA-Z_\-+.\t]{0,20}\Z"),
        ),
    ),
    max_size=12,
)


@given(pairs, st.booleans(), st.floats(0.001, 3600))
def test_strangers_cannot_extend_or_raise(
    raw: list[tuple[bytes, bytes]], trusted: bool, longest: float
) -> None:
    headers = Headers(max_deadline=longest, deadline_in=(*HEADERS.deadline_in, "grpc-timeout"))
    received = headers.read(raw, trusted=trusted)
    deadline, level = received.deadline, received.criticality
    assert deadline is None or deadline == 0 or 0.001 <= deadline <= longest
    assert trusted or level is None or level <= Criticality.CRITICAL
    known = sum(name in headers._known for name, _ in raw)
    assert received.malformed >= 0
    assert known or received == Received()
    # More headers only shorten and lower.
    less = headers.read(raw[1:], trusted=trusted)
    if less.deadline is not None:
        assert deadline is not None
        assert deadline <= less.deadline
    if less.criticality is not None:
        assert level is not None
        assert level <= less.criticality
    assert received.malformed >= less.malformed
    # What it says can be told as it is.
    with use_clock(ManualClock()), context.deadline(3600 if deadline is None else deadline):
        assert context.remaining() == pytest.approx(3600 if deadline is None else deadline)


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_may_come(name: str, value: str) -> None:
    HEADERS.read({name: value, "x-criticality": value, "x-request-timeout-ms": value})


@given(st.floats(0, 3600), st.sampled_from([None, *Criticality]), st.sampled_from([HEADERS, GRPC]))
def test_the_other_side_reads_what_is_written(
    left: float, level: Criticality | None, headers: Headers
) -> None:
    other_side = Headers(
        deadline_in=headers.deadline_in, deadline_out=headers.deadline_out, max_deadline=3600
    )
    with use_clock(ManualClock()), context.deadline(left) as deadline:
        if level is None:
            written = headers.write()
        else:
            with context.criticality(level):
                written = headers.write()
        left = deadline.remaining()
    received = other_side.read(written, trusted=True)
    assert received == other_side.read(dict(written), trusted=True)
    assert received.criticality is level
    assert received.deadline is not None
    # Never more than is left, but for the last millisecond.
    assert received.deadline <= max(left, 0.001 if left else 0)
    assert left - received.deadline < 0.001 + 1e-9


def test_what_is_written() -> None:
    assert HEADERS.write() == []
    with use_clock(clock := ManualClock()), context.deadline(0.25):
        assert HEADERS.write() == [("x-request-timeout-ms", "250")]
        assert GRPC.write() == [("grpc-timeout", "250m")]
        with context.criticality(Criticality.SHEDDABLE_PLUS):
            assert HEADERS.write()[1] == ("x-criticality", "SHEDDABLE_PLUS")
        clock.advance(0.2499)
        assert HEADERS.write() == [("x-request-timeout-ms", "1")]
        clock.advance(1)
        assert HEADERS.write() == [("x-request-timeout-ms", "0")]
        assert GRPC.write() == [("grpc-timeout", "0m")]
    with context.key("user"):
        assert HEADERS.write() == []
    with context.deadline(Deadline.after(3600, clock=ManualClock())):
        assert HEADERS.write() == [("x-request-timeout-ms", "3600000")]


def test_who_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = {"client": ("10.0.0.1", 1234)}
    assert not HEADERS.trusts(scope)
    assert Headers(trusted=True).trusts(scope)
    inside = Headers(trusted=lambda scope: scope["client"][0].startswith("10."))
    assert inside.trusts(scope)
    assert not inside.trusts({"client": ("192.0.2.1", 1)})
    truthy: Any = lambda scope: scope["client"]  # noqa: E731
    assert not Headers(trusted=truthy).trusts(scope)
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    assert not inside.trusts({})
    assert isinstance(reported[0].exc_value, KeyError)
    assert reported[0].object is inside.trusted


async def is_async(scope: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"deadline_in": "x-timeout"}, TypeError, "deadline_in must be a tuple"),
        ({"deadline_in": ["x-timeout"]}, TypeError, "deadline_in must be a tuple"),
        ({"deadline_in": ("x-timeout", 5)}, TypeError, "deadline_in must be the name"),
        ({"deadline_in": ("",)}, ValueError, "deadline_in must be the name"),
        ({"deadline_in": ("x timeout",)}, ValueError, "deadline_in must be the name"),
        ({"deadline_in": ("x-time\u00f6ut",)}, ValueError, "deadline_in must be the name"),
        ({"deadline_in": ("a", "A")}, ValueError, "different headers"),
        ({"deadline_in": ("X-Criticality",)}, ValueError, "different headers"),
        ({"deadline_out": None}, TypeError, "deadline_out must be"),
        ({"deadline_out": "a\r\nb"}, ValueError, "deadline_out must be"),
        ({"criticality": b"x"}, TypeError, "criticality must be"),
        ({"saturation": "a:b"}, ValueError, "saturation must be"),
        ({"max_deadline": 0}, ValueError, "max_deadline must be"),
        ({"max_deadline": -1}, ValueError, "max_deadline must be"),
        ({"max_deadline": math.nan}, ValueError, "max_deadline must be"),
        ({"max_deadline": 3601}, ValueError, "max_deadline must be"),
        ({"max_deadline": True}, TypeError, "max_deadline must be"),
        ({"max_deadline": "60"}, TypeError, "max_deadline must be"),
        ({"trusted": None}, TypeError, "trusted must be"),
        ({"trusted": 1}, TypeError, "trusted must be"),
        ({"trusted": is_async}, TypeError, "trusted must be"),
    ],
)
def test_headers_that_cannot_be(options: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        Headers(**options)


def test_equal_ones_are_equal() -> None:
    assert Headers() == HEADERS
    assert len({Headers(), HEADERS, GRPC}) == 2
