"""What the pages say is so: links, snippets, constants, figures, our part of the comparison."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from sluicegate._comparison import Comparison, markdown, worst
from sluicegate.simulation import scenarios, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures"
LOAD = ROOT / "tests" / "scenarios" / "load"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    LOAD / "README.md",
    LOAD / "pending" / "README.md",
    *sorted(DOCS.glob("*.md")),
]
CHEAP = 100_000
"""So many requests with one seed take so little time that all seeds are played here."""

by_name = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT)).replace("/", "-")
)


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of the headings."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code(page: Path, language: str) -> Iterator[str]:
    for match in re.finditer(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        yield match[1]


@by_name
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@by_name
def test_python_on_a_page_is_python(page: Path) -> None:
    for snippet in code(page, "python"):
        ast.parse(snippet)


def test_snippets_of_the_documentation_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for page in sorted(DOCS.glob("*.md")):
        names: dict[str, Any] = {}
        for snippet in code(page, "python"):
            exec(compile(snippet, str(page), "exec"), names)
        for name, test in names.items():
            if name.startswith("test_"):
                test()


def test_scenarios_on_pages_are_those_of_the_files() -> None:
    for page in [*sorted(DOCS.glob("*.md")), LOAD / "README.md"]:
        for text in code(page, "toml"):
            content = tomllib.loads(text)
            simulate(content)
            if page.parent == DOCS:
                files = [path.read_text("utf-8") for path in FIGURES.glob("*.toml")]
                assert content in [tomllib.loads(file) for file in files]


def test_each_figure_is_drawn_by_its_own_scenario_and_shown() -> None:
    shown = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    drawn = set()
    for path in FIGURES.glob("*.toml"):
        scenarios(path)
        command = path.read_text("utf-8").split("\n", 1)[0]
        if command.startswith("# sluicegate simulate "):
            assert command.split()[3] == path.name
            assert command.endswith(f" --plot {path.stem}.svg")
            assert f"](figures/{path.stem}.svg)" in shown
            drawn.add(f"{path.stem}.svg")
        assert f"figures/{path.name}" in shown
    files = {path.name: path.stat().st_size for path in FIGURES.glob("*.svg")}
    assert set(files) == drawn
    assert max(files.values()) < 150_000


def test_constants_are_those_of_the_source() -> None:
    text = (DOCS / "adaptive-limit.md").read_text("utf-8")
    rows = re.findall(r"^\| `([A-Z_]+)` \| `(\w+\.rs)` \| (\S+) \|", text, re.MULTILINE)
    assert len(rows) > 20
    folder = ROOT / "src" / "primitives" / "gradient"
    for name, file, value in rows:
        # Names are kept by the queue, too.
        path = folder.parent / file if file == "names.rs" else folder / file
        source = path.read_text("utf-8")
        assert re.search(rf"\bconst {name}: \w+ = {re.escape(value)};", source), (name, file, value)


def table() -> list[list[str]]:
    text = (DOCS / "comparison.md").read_text("utf-8")
    printed = text.split("<!-- printed -->")[1].split("<!-- end -->")[0]
    return [line.strip("| ").split(" | ") for line in printed.strip().splitlines()]


def test_the_comparison_is_of_all_rows_of_the_matrix() -> None:
    header, _, *rows = table()
    assert header[3:] == [
        *("adaptive", "aimd", "vegas", "vegas/windowed", "gradient", "gradient/windowed"),
        *("gradient2", "gradient2/windowed"),
    ]
    files = sorted(LOAD.glob("matrix-*.toml"))
    results = [json.loads((LOAD / "results" / f"{path.stem}.json").read_text()) for path in files]
    checks = [check for result in results for each in result.values() for check in each["checks"]]
    assert len(rows) == len(checks) + 1
    names = [row[0] for row in rows if row[0].startswith("matrix-")]
    assert names == [name for result in results for name in result]
    text = (DOCS / "comparison.md").read_text("utf-8")
    for path in files:
        about = tomllib.loads(path.read_text("utf-8"))["about"]
        assert f"| [{path.stem}](../tests/scenarios/load/{path.name}) | {about} |" in text


def test_our_column_of_the_comparison_is_what_comes_of_it() -> None:
    text = (DOCS / "comparison.md").read_text("utf-8")
    played = 0
    for path in sorted(LOAD.glob("matrix-*.toml")):
        results = json.loads((LOAD / "results" / f"{path.stem}.json").read_text("utf-8"))
        content = tomllib.loads(path.read_text("utf-8"))
        for (name, known), variant in zip(results.items(), scenarios(path), strict=True):
            if known["requests"] > CHEAP:
                continue
            seeds = [
                simulate(path, policy="adaptive", variant=variant, seed=seed)
                for seed in range(1, content["seeds"] + 1)
            ]
            checks = zip(*(result.checks for result in seeds), strict=True)
            ours = tuple(worst(same) for same in checks)
            _, _, *rows, _ = markdown([Comparison(name, len(seeds), {"adaptive": ours})])
            for row in rows:
                assert f"\n{row} " in text, row
            played += 1
    assert played > 5


def test_building_rewrites_what_a_page_prints(tmp_path: Path) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("build", DOCS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    page = tmp_path / "page.md"
    printing = "```console\n$ python -c 'print(6 * 7)'\n"
    other = "\n```sh\nnobody runs this\n```\n"
    table = "```\n\n<!-- printed -->\n{}<!-- end -->\n"
    page.write_text(
        f"{printing}old\n```\n{other}{printing}{table.format('')}{printing}```\n", "utf-8"
    )
    build.build(page)
    expected = (
        f"{printing}42\n```\n{other}{printing}{table.format(f'{os.linesep}42{os.linesep * 2}')}"
        f"{printing}42\n```\n"
    )
    assert page.read_text("utf-8") == expected
    build.build(page)
    assert page.read_text("utf-8") == expected


def test_snapshots_say_what_the_page_says() -> None:
    import subprocess

    text = (DOCS / "adaptive-limit.md").read_text("utf-8")
    for day in ("calm", "slower-dependency"):
        command = [sys.executable, str(DOCS / "snapshots.py"), day]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
        assert f"$ python docs/snapshots.py {day}\n{done.stdout}```" in text
