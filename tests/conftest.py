"""What every test can count on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import limiters
import sluicegate


def pytest_sessionstart() -> None:
    """Refuse to test the source tree: users get the wheel."""
    package = Path(sluicegate.__file__).resolve()
    sources = Path(__file__).resolve().parent.parent / "python"
    if package.is_relative_to(sources):
        pytest.exit(f"{package} is the source tree; install the wheel", returncode=2)


@pytest.fixture(scope="session")
def scale() -> float:
    """Multiply the counts of randomised tests: 1 in full, a tenth otherwise."""
    return 1.0 if os.environ.get("SLUICEGATE_TEST_FULL") == "1" else 0.1


@pytest.fixture(params=list(limiters.KINDS))
def new(request: pytest.FixtureRequest) -> limiters.New:
    """Make a limiter, or a gate."""
    return limiters.KINDS[request.param]
