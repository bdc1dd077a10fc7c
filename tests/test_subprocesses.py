"""What runs other tests in a process of its own has to fail when they do."""

from __future__ import annotations

import pytest

from subprocesses import SnippetFailedError, run


def test_a_snippet_that_ends_well_gives_what_it_printed() -> None:
    assert run("import sys; print(sys.argv[1:])", "a", "b") == "['a', 'b']\n"


@pytest.mark.parametrize(
    ("snippet", "words"),
    [
        ("assert 1 == 2", ["ended with 1", "AssertionError", "line 2"]),
        ("import os; os.abort()", ["ended with -6"]),
        ("import sys; print('seen'); sys.exit(3)", ["ended with 3", "seen"]),
    ],
)
def test_a_snippet_that_fails_says_how(snippet: str, words: list[str]) -> None:
    with pytest.raises(SnippetFailedError) as failure:
        run(snippet)
    for word in words:
        assert word in str(failure.value)
    assert snippet in str(failure.value)


def test_a_snippet_that_hangs_says_where() -> None:
    with pytest.raises(SnippetFailedError, match=r"was not done after 0\.5 s") as failure:
        run("import time\nprint('begun')\ntime.sleep(30)\n", seconds=0.5)
    assert "begun" in str(failure.value)
    assert "line 4" in str(failure.value)
