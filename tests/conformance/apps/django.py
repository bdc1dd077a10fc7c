"""The routes in Django."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="conformance",
        MIDDLEWARE=[],
        DATA_UPLOAD_MAX_MEMORY_SIZE=None,
        LOGGING_CONFIG=None,
    )
    django.setup(set_prefix=False)

from django.core.asgi import get_asgi_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from conformance.apps.report import inside, report
from conformance.apps.watch import watched

if TYPE_CHECKING:
    from django.http import HttpRequest


def name_of(request: HttpRequest) -> str:
    name: str = request.GET.get("name", "")
    return name


async def metrics(request: HttpRequest) -> Any:
    return JsonResponse(report(name_of(request)))


async def order(request: HttpRequest) -> Any:
    return HttpResponse(report.order(request.META["QUERY_STRING"]))


async def echo(request: HttpRequest) -> Any:
    report.started(name_of(request))
    return HttpResponse(f"{request.method} {len(request.body)}")


async def hold(request: HttpRequest) -> Any:
    return HttpResponse(await report.hold(name_of(request)))


async def stream(request: HttpRequest) -> Any:
    return StreamingHttpResponse(report.chunks(name_of(request)), content_type="text/plain")


async def events(request: HttpRequest) -> Any:
    return StreamingHttpResponse(report.chunks(name_of(request)), content_type="text/event-stream")


async def breaking(request: HttpRequest) -> Any:
    return StreamingHttpResponse(report.chunks(name_of(request), fails=True))


async def failing(request: HttpRequest) -> Any:
    raise report.failure(name_of(request))


async def context(request: HttpRequest) -> Any:
    inside.set(name_of(request))
    report.started(name_of(request))
    return HttpResponse("set")


urlpatterns = [
    path("metrics", metrics),
    path("ping", order),
    path("echo", echo),
    path("hold", hold),
    path("stream", stream),
    path("sse", events),
    path("break", breaking),
    path("raise", failing),
    path("context", context),
]

served = watched(get_asgi_application())
