"""The routes in FastAPI, protected in its one line."""

from __future__ import annotations

from conformance.apps.fastapi import build
from conformance.apps.watch import OPTIONS, Watch
from sluicegate.fastapi import protect

served = Watch({way: protect(build(), **of) for way, of in OPTIONS.items()})
