"""Runs a snippet of Python in a process of its own, with a limit on its time.

For whatever could hang: a thread that waits for a lock while it holds the interpreter cannot be
interrupted from inside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
# What the watchdog inside gets to write down where everybody stands.
GRACE = 5.0

_WATCHDOG = "import faulthandler; faulthandler.dump_traceback_later({seconds}, exit=True)\n"


class SnippetFailedError(AssertionError):
    """A snippet ended otherwise than it should, or did not end."""


def run(snippet: str, *arguments: str, seconds: float = 10.0, is_watched: bool = True) -> str:
    """Run a snippet with arguments in `sys.argv`; return what it printed.

    If it takes longer than `seconds`, the stacks of all its threads are part of the failure, unless
    it is not watched: a child that it forks could not exit in the regular way then, since it would
    wait for the watchdog, which has no thread in the child.
    """
    code = textwrap.dedent(snippet).strip() + "\n"
    watchdog = _WATCHDOG.format(seconds=seconds) if is_watched else "\n"
    process = subprocess.Popen(
        [sys.executable, "-c", watchdog + code, *arguments],
        cwd=HERE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds + GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        raise _failure("did not end", code, arguments, output, errors) from None
    if process.returncode != 0:
        what = f"ended with {process.returncode}"
        if "Timeout (" in errors:
            what = f"was not done after {seconds} s"
        raise _failure(what, code, arguments, output, errors)
    return output


def _failure(
    what: str, code: str, arguments: tuple[str, ...], output: str, errors: str
) -> SnippetFailedError:
    # The watchdog stands on line 1, so that the numbers are those of a traceback.
    lines = "\n".join(f"{number:4} {line}" for number, line in enumerate(code.splitlines(), 2))
    parts = [f"the snippet {what}; arguments: {list(arguments)}", lines]
    parts += [f"--- stdout\n{output}", f"--- stderr\n{errors}"]
    return SnippetFailedError("\n".join(parts))


def end(process: subprocess.Popen[bytes], seconds: float = 10.0) -> None:
    """End a process that was started here, by force if it takes longer than so many seconds."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
