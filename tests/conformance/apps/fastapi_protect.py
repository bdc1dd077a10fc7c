"""The routes in FastAPI, protected in its one line."""

from __future__ import annotations

from conformance.apps.fastapi import build
from conformance.apps.report import report
from conformance.apps.watch import OPTIONS, Watch
from sluicegate.fastapi import protect

served = Watch(
    protect(build(), limit=report.limiter, **OPTIONS),
    protect(build(), limit=report.line, **OPTIONS),
)
