"""Rules: which one holds for a request."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sluicegate import Criticality, Gate
from sluicegate._rules import DEFAULT_EXEMPT, Rule, finder


@pytest.mark.parametrize(
    ("match", "method", "path", "is_matched"),
    [
        ("/a", "GET", "/a", True),
        ("/a", "POST", "/a", True),
        ("/a", "GET", "/a/", True),
        ("/a/", "GET", "/a", True),
        ("/a", "GET", "/a\n", True),
        ("/a", "GET", "//a", True),
        ("/a/b", "GET", "/a//b/", True),
        ("/a/b", "GET", "///a/b", True),
        ("/a/{b}", "GET", "/a/b/", True),
        ("/a/{b}/", "GET", "/a/b", True),
        ("/a", "GET", "/A", False),
        ("/a", "GET", "/ab", False),
        ("POST /a", "POST", "/a", True),
        ("POST /a", "GET", "/a", False),
        ("GET /a", "HEAD", "/a", True),
        ("HEAD /a", "GET", "/a", False),
        ("WEBSOCKET /a", "WEBSOCKET", "/a", True),
        ("WEBSOCKET /a", "GET", "/a", False),
        ("/users/{id}", "GET", "/users/1", True),
        ("/users/{id}", "GET", "/users/a%2Fb", True),
        ("/users/{id}", "GET", "/users/", False),
        ("/users/{id}", "GET", "/users/1/2", False),
        ("/users/{id}/posts/{n}", "GET", "/users/1/posts/2", True),
        ("/users/{id}.json", "GET", "/users/1.json", True),
        ("/users/{id}.json", "GET", "/users/1xjson", False),
        ("/reports/*", "GET", "/reports", True),
        ("/reports/*", "GET", "/reports/", True),
        ("/reports/*", "GET", "/reports/a/b", True),
        ("/reports/*", "GET", "/reports/a\nb", True),
        ("/reports/*", "GET", "/reportsx", False),
        ("GET /{tenant}/*", "GET", "/x/y/z", True),
        ("/*", "GET", "/", True),
        ("/*", "GET", "/a", True),
        ("*", "GET", "", True),
        ("*", "OPTIONS", "/a", True),
        ("/", "GET", "/", True),
        ("/", "GET", "", False),
        ("/a+b", "GET", "/a+b", True),
        ("/a+b", "GET", "/aab", False),
        ("/a b", "GET", "/a b", True),
        ("GET /{x}/a b", "GET", "/1/a b", True),
        ("/100%", "GET", "/100%", True),
        ("PURGE /a", "PURGE", "/a", True),
        ("M-SEARCH /a", "M-SEARCH", "/a", True),
        ("/f/{p:path}", "GET", "/f/a", True),
        ("/f/{p:path}", "GET", "/f/a/b", True),
        ("/f/{p:path}", "GET", "/f", True),
        ("/f/{p:path}", "GET", "/fa", False),
        ("/f/{p:path}/", "GET", "/f/a/b", True),
        ("/{p:path}", "GET", "/a/b", True),
        ("/{x}/{p:path}", "GET", "/a/b/c", True),
        ("/users/{id:int}", "GET", "/users/12/", True),
        ("/users/{id:int}", "GET", "/users/me", False),
        ("/users/{id:int}.json", "GET", "/users/12.json", True),
        ("/users/{id:int}/*", "GET", "/users/12/posts", True),
        ("/users/{id:str}", "GET", "/users/me", True),
        ("/users/{id:str}", "GET", "/users/me/x", False),
        ("/x/{n:float}", "GET", "/x/1.5", True),
        ("/x/{n:float}", "GET", "/x/1", True),
        ("/x/{n:float}", "GET", "/x/1.", False),
        ("/x/{n:uuid}", "GET", "/x/12345678-1234-1234-1234-123456789abc", True),
        ("/x/{n:uuid}", "GET", "/x/12345678", False),
    ],
)
def test_what_matches(match: str, method: str, path: str, is_matched: bool) -> None:
    rule = Rule(match)
    assert (finder([rule])(method, path) is rule) is is_matched


def test_the_first_match_counts() -> None:
    whole, post, pattern = Rule("/a/b"), Rule("POST /a/b"), Rule("/a/*")
    assert finder([whole, post, pattern])("POST", "/a/b") is whole
    assert finder([post, whole, pattern])("POST", "/a/b") is post
    assert finder([pattern, post, whole])("POST", "/a/b") is pattern
    assert finder([post, pattern, whole])("GET", "/a/b") is pattern
    get, head = Rule("GET /a"), Rule("HEAD /a")
    assert finder([get, head])("HEAD", "/a") is get
    assert finder([head, get])("HEAD", "/a") is head
    first, second = Rule("/a"), Rule("/a", exempt=True)
    assert finder([first, second])("GET", "/a") is first


def test_probes_are_exempt_unless_a_rule_names_them() -> None:
    find = finder([])
    for path in DEFAULT_EXEMPT:
        rule = find("GET", path)
        assert rule is not None
        assert rule.exempt
    named = Rule("POST /metrics", criticality=Criticality.CRITICAL)
    find = finder([named])
    assert find("POST", "/metrics") is named
    assert find("GET", "/metrics") is None
    rule = find("GET", "/healthz")
    assert rule is not None
    assert rule.exempt
    everything = Rule("*", criticality=Criticality.SHEDDABLE)
    rule = finder([everything])("GET", "/healthz")
    assert rule is not None
    assert rule.exempt


@pytest.mark.parametrize(
    "match",
    [
        "",
        "a",
        "/a ",
        "/a  b",
        "/a\tb",
        "post /a",
        "/users/<id>",
        "/users/<int:id>",
        "/{:int}",
        "/{a:b:c}",
        "POST  /a",
        "/a*",
        "/a/*/b",
        "/{a",
        "/a}",
        "/{}",
        "/a?b",
        "/a#b",
        "* /a",
        "/{a/b}",
        "/{a}-{b}",
    ],
)
def test_no_pattern(match: str) -> None:
    with pytest.raises(
        ValueError, match=f"^match must be a path such as .*{re.escape(repr(match))}"
    ):
        Rule(match)


@pytest.mark.parametrize(
    ("match", "text"),
    [
        ("/a%20b", "match is compared with decoded paths: write '/a b', got '/a%20b'"),
        ("POST /caf%C3%A9", "write '/café', got 'POST /caf%C3%A9'"),
        ("/a/{b}%2f", "write '/a/{b}/'"),
        ("GETT /a", "GETT is no method, in the match 'GETT /a': is GET meant?"),
        ("PSOT /a", "is POST meant?"),
        ("DELTE *", "is DELETE meant?"),
        ("WEBSOCKETS /a", "is WEBSOCKET meant?"),
        ("/f/{p:path}/edit", "the converter 'path' in the match '/f/{p:path}/edit' is none of"),
        ("/f/{p:path}/edit", "for all that begins so there is '/f/*'"),
        ("GET /f/{x}/g{p:path}", "for all that begins so there is 'GET /f/{x}/*'"),
        ("/f{p:path}", "for all that begins so there is '/*'"),
        ("/f/{p:path}.txt", "is none of str, int, float and uuid"),
        ("/f/{p:year}", "the converter 'year' in the match"),
        ("/f/{p:}", "the converter '' in the match"),
    ],
)
def test_what_would_hold_for_no_request_says_so(match: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        Rule(match)


@pytest.mark.parametrize(
    "method",
    [
        *("CONNECT", "TRACE", "QUERY", "SEARCH", "REPORT", "MERGE", "COPY", "MOVE", "LOCK"),
        *("PROPFIND", "PROPPATCH", "VERSION-CONTROL", "UPDATE", "LINK", "NOTIFY", "BAN", "LIST"),
    ],
)
def test_methods_that_are_less_common_are_taken(method: str) -> None:
    assert Rule(f"{method} /a")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"match": 1}, TypeError, "match must be a path"),
        ({"criticality": 2}, TypeError, "criticality must be a Criticality"),
        ({"gate": 3}, TypeError, "gate must be a Gate"),
        ({"operation": b"x"}, TypeError, "operation must be a string"),
        ({"exempt": 1}, TypeError, "exempt must be True or False"),
        ({"stream": None}, TypeError, "stream must be True or False"),
        ({"degrade": "x"}, TypeError, "degrade must be a callable"),
        ({"max_lifetime": "1"}, TypeError, "max_lifetime must be a number of seconds"),
        ({"max_lifetime": True}, TypeError, "max_lifetime must be a number of seconds"),
        ({"max_lifetime": 0}, ValueError, "max_lifetime must be a number of seconds"),
        ({"max_lifetime": float("nan")}, ValueError, "max_lifetime must be a number of seconds"),
        *(
            ({"exempt": True, name: value}, ValueError, f"exempt excludes {name}, in the rule for")
            for name, value in {
                "stream": True,
                "gate": Gate(1),
                "operation": "probe",
                "criticality": Criticality.SHEDDABLE,
                "degrade": print,
            }.items()
        ),
        ({"exempt": True, "max_lifetime": 1}, ValueError, "max_lifetime is for streams"),
        ({"max_lifetime": 1}, ValueError, "it needs stream=True, or .* in the rule for '/a'"),
        ({"match": "GET /a", "max_lifetime": 1}, ValueError, "max_lifetime is for streams"),
        ({"stream": True, "gate": Gate(1)}, ValueError, "stream excludes gate, in the rule for"),
        *(
            ({"match": "WEBSOCKET /a", name: value}, ValueError, f"a websocket excludes {name}, in")
            for name, value in {"gate": Gate(1), "exempt": True, "degrade": print}.items()
        ),
    ],
)
def test_bad_rules(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Rule(**{"match": "/a", **arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {"stream": True, "max_lifetime": 1},
        {"match": "WEBSOCKET /a", "max_lifetime": 1, "criticality": Criticality.SHEDDABLE},
        {"match": "WEBSOCKET /a", "stream": True, "operation": "chat"},
        {"stream": True, "degrade": print, "operation": "x", "criticality": Criticality.CRITICAL},
        {"gate": Gate(1), "degrade": print, "operation": "x", "criticality": Criticality.CRITICAL},
    ],
)
def test_what_goes_together(arguments: dict[str, Any]) -> None:
    assert Rule(**{"match": "/a", **arguments})


@pytest.mark.parametrize("rules", ["/a", b"/a", 1, None, {"/a": 1}, ["/a"], [None], (Rule,)])
def test_no_rules(rules: Any) -> None:
    with pytest.raises(TypeError, match=r"^rules must"):
        finder(rules)
