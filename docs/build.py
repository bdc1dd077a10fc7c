"""Writes the figures of the documentation, and what the commands on its pages print.

    python docs/build.py                          # all of it, which takes a while
    python docs/build.py docs/adaptive-limit.md   # only what is on that page

A figure is drawn by the command in the first line of its scenario, `figures/NAME.toml`. Of a page
each block like

    ```console
    $ sluicegate simulate …
    ```

is run in the root of the repository, and followed by what that prints; or, if it is Markdown, by
that between `<!-- printed -->` and `<!-- end -->` below the block. Nothing here depends on time or
chance: if nothing changed, nothing is written anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
FIGURES = DOCS / "figures"

BLOCK = re.compile(
    r"```console\n(?P<command>\$ (?:[^\n]*\\\n)*[^\n]*\n)(?P<output>(?:(?!```)[^\n]*\n)*)```\n"
    r"(?P<table>\n<!-- printed -->\n.*?<!-- end -->\n)?",
    re.DOTALL,
)
TOOK = re.compile(r"^[\d,]+ simulations?, .* s\n", re.MULTILINE)
"""How long it took, which is different each time."""


def run(command: str, folder: Path) -> str:
    """Return what a command prints, with the programs of this interpreter."""
    name, *arguments = shlex.split(command.replace("\\\n", " "), comments=True)
    program = {"python": sys.executable}.get(name, str(Path(sys.executable).parent / name))
    done = subprocess.run(  # noqa: S603
        [program, *(each for argument in arguments for each in expand(argument, folder))],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    if done.returncode not in (0, 1):  # 1 says that a bound is missed, and so does what is printed
        raise SystemExit(f"{command}: {done.returncode}")
    lines = TOOK.sub("", done.stdout).splitlines()
    return "".join(line.rstrip() + "\n" for line in lines)


def expand(argument: str, folder: Path) -> list[str]:
    """Return the files that a pattern stands for, as a shell does."""
    if "*" not in argument:
        return [argument]
    found = sorted(str(path.relative_to(folder)) for path in folder.glob(argument))
    return found or [argument]


def drawing(scenario: Path) -> str | None:
    """Return the command that draws a scenario, if it has one."""
    first = scenario.read_text("utf-8").split("\n", 1)[0]
    return first.removeprefix("# ") if first.startswith("# sluicegate ") else None


def rewritten(block: re.Match[str]) -> str:
    """Return a block of a page, with what its command prints now."""
    print(block["command"].strip(), file=sys.stderr)  # noqa: T201
    printed = run(block["command"].removeprefix("$ "), ROOT)
    if block["table"] is None:
        return f"```console\n{block['command']}{printed}```\n"
    return f"```console\n{block['command']}```\n\n<!-- printed -->\n\n{printed}\n<!-- end -->\n"


def build(page: Path) -> None:
    """Draw the figures of a page, and run its commands."""
    text = page.read_text("utf-8")
    for scenario in sorted(FIGURES.glob("*.toml")):
        command = drawing(scenario)
        if command is not None and f"figures/{scenario.stem}.svg" in text:
            print(f"$ {command}", file=sys.stderr)  # noqa: T201
            run(command, FIGURES)
    page.write_text(BLOCK.sub(rewritten, text), "utf-8")


if __name__ == "__main__":
    for page in [Path(name) for name in sys.argv[1:]] or sorted(DOCS.glob("*.md")):
        build(page.resolve())
