"""Progress while the demonstration runs: a live table, or plain lines if not a terminal."""

import time
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

PLAIN_SECONDS: Final = 4.0
"""Between two plain lines."""

COLUMNS: Final = {
    "offered": "offered/s",
    "goodput": "goodput/s",
    "refused": "refused/s",
    "in_flight": "in flight",
}


class Progress:
    """Shows the latest news of every server."""

    def __init__(self, console: Console, servers: list[str]) -> None:
        self._console = console
        self._news: dict[str, dict[str, Any]] = {server: {} for server in servers}
        self._stage = ""
        self._due = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, server: str, stage: str, news: dict[str, Any]) -> None:
        """Take the news of one server in; show it when it is time."""
        self._news[server] = news
        self._stage = stage
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        elif all(self._news.values()) and time.monotonic() >= self._due:
            self._due = time.monotonic() + PLAIN_SECONDS
            self._console.print(self._line(), soft_wrap=True, highlight=False)

    def _table(self) -> Table:
        table = Table(title=self._stage, title_justify="left")
        table.add_column("server")
        for title in COLUMNS.values():
            table.add_column(title, justify="right", min_width=10)
        for server, news in self._news.items():
            table.add_row(server, *(_number(news.get(key)) for key in COLUMNS))
        return table

    def _line(self) -> str:
        parts = [self._stage]
        for server, news in self._news.items():
            numbers = [
                f"{_number(news[key])} {title}" for key, title in COLUMNS.items() if key in news
            ]
            parts.append(f"{server}: " + ", ".join(numbers))
        return " | ".join(parts)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
