"""Load shedding for any WSGI application, in servers with worker threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from sluicegate import _core
from sluicegate._caps import Cap
from sluicegate._checks import check_callable, check_count
from sluicegate._enums import Outcome, Reason
from sluicegate._guard import is_coroutine_function
from sluicegate._headers import Headers, deadline_of
from sluicegate._options import check_gate, find_rule, key_of, warn_if_all_are_admitted
from sluicegate._queue_time import QueueTime
from sluicegate._rules import DEFAULT_EXEMPT, Rule, finder
from sluicegate._semaphore import SemaphoreLimiter
from sluicegate._wsgi_body import Asked, Hold, run_under
from sluicegate._wsgi_environ import HeaderReader, is_retry, path_of
from sluicegate._wsgi_gate import check_threads, gate_for, streams_of
from sluicegate._wsgi_refusal import (
    Environ,
    Respond,
    Start,
    StartResponse,
    WSGIApp,
    answer,
    answer_by,
    ask,
    info_of,
    rejection_of,
)
from sluicegate._wsgi_server_check import ServerCheck
from sluicegate._wsgi_threads import Threads

if TYPE_CHECKING:
    from sluicegate._core import Permit, Rejection
    from sluicegate._enums import Criticality
    from sluicegate._gate import Gate
    from sluicegate._limiter import BaseLimiter

__all__ = [
    "DEFAULT_EXEMPT",
    "PERMIT",
    "Environ",
    "LoadSheddingMiddleware",
    "Respond",
    "Rule",
    "StartResponse",
    "WSGIApp",
]

#: The key of the environ where the permit of a request is, so that it can be named:
#: `environ[PERMIT].operation = "/users/<id>"`.
PERMIT: Final = "sluicegate.permit"

_LOG: Final = logging.getLogger("sluicegate.wsgi")
_DEFAULT_HEADERS: Final = Headers()
_NO_RULE: Final = Rule("*")


class LoadSheddingMiddleware:
    """Answer 503 at once when more requests arrive than can be done in time.

    A WSGI server such as gunicorn with `--threads` hands a request to the first worker thread that
    is free; until then it waits in a queue of the server, where nobody looks at it. So one thread
    is left over, whatever runs, which refuses: a request either gets a permit and runs, or it is
    answered 503 with `Retry-After` and a small JSON body, before its body is read. Nobody waits
    here, since who waits would hold a thread: this is so too for a `gate` of yours that lets
    others wait.

        application = LoadSheddingMiddleware(get_wsgi_application(), threads=8)

    in the `wsgi.py` of a Django project; for Flask there is `sluicegate.flask.protect()`. The
    numbers are for one process: of `gunicorn --workers 4 --threads 8` it is the 8. If the server
    says that it has one thread all the same, that is in the log once.

    The permit is held until the server closes the response, also if the client has left meanwhile.
    A response below 400 counts as SUCCESS, 504 and a `TimeoutError` as OVERLOAD, all else as
    IGNORED, and so does a response that was not made to its end, or that came too late for the
    time that a stranger gave. A `Rejected` that the application
    raises is answered with its 503 or 429, a `TimedOut` or `QueueClosed` with 503.

    Retries that say so (`x-envoy-attempt-count`, `grpc-previous-rpc-attempts`) are shed before
    first attempts of the same criticality.

    What the headers of a request say of its deadline and its criticality, and its `key`, is the
    context of the application (see `sluicegate.context`), also while it makes the parts of its
    response. Time in queues before counts as waited if a proxy tells by `queue_time_header` when
    the request came: it is taken off the deadline, and who has no deadline is refused after
    `max_queue_time`. While the queue stands, half of either has to do: who is served at the last
    moment is done too late. Where all are too late for 10 s, the clock of the proxy is thought to
    differ, and the header is ignored until one is in time; what strangers give does not count
    there.

    What becomes of the body of a refused upload is up to the server, which may not be told by a
    header under WSGI to close the connection. gunicorn reads it, or closes the connection.

    Args:
        app: The WSGI application to protect.
        threads: How many worker threads the server has in this process, from 1 to 100,000. With 1,
            requests can only be refused for their time in the queue; if none of the first 100 tells
            that, the log says so.
        gate: A `Gate`, which may be shared. Its limit is below `threads`, and has to stay there.
            Default: one that never waits, named "wsgi".
        limit: How many requests may be in flight at once: a number above 0 and below `threads`, or
            a new limiter of this package whose limit cannot reach it. Default: it follows
            latency, from 1 to `threads` - 1, or - 2 if there is a rule that is exempt, or a
            `degrade`: these need a thread too.
        rules: What holds for which requests: a sequence of `Rule`, or a function that returns one
            or `None` for an environ. `DEFAULT_EXEMPT` are exempt unless a rule names them.
        key: Returns for an environ who calls, or `None`: where some of a criticality are shed, it
            is the same callers for a while.
        headers: By which headers a deadline and a criticality come, and who is trusted: that
            function gets the environ.
        exempt_limit: How many requests of exempt paths may be in flight at once, from 1 to 1e9.
            With all others they are below `threads`. Only a probe of `DEFAULT_EXEMPT` may take the
            last thread, and `/metrics` of these while no other exempt request runs.
        max_streams: How many requests by rules with `stream=True` may be in flight at once. They
            hold threads of their own: the limit is below `threads` - `max_streams`. `None`: a
            quarter of the threads, at least 1, if there is such a rule. With a function as
            `rules`, streams take permits like all others unless it is given.
        respond: Answers who is refused, see `Respond`; default: JSON.
        degrade: Makes a cheaper answer for who would be refused, see `Respond`; the rule may have
            one of its own. It takes one of the threads that `limit` leaves, and never the last.
        degrade_limit: How many of these may be in flight at once, from 1 to 1e9.
        on_reject: Is told the environ and the rejection of each that is refused, and not of who is
            answered by `degrade`.
        queue_time_header: In which header a proxy tells when a request came, such as nginx by
            `proxy_set_header X-Request-Start "t=${msec}"`: in seconds, milliseconds or
            microseconds since 1970. What cannot be, is in the future or longer ago than an hour is
            ignored and counted. `None`: it is not read.
        max_queue_time: After how many seconds in queues a request without a deadline is refused,
            above 0 and at most 3600; `None`: 1, or 10 mean service times if that is longer.

    What `respond`, `degrade`, `on_reject`, `key` or a function as `rules` raises is reported by
    `sys.unraisablehook`, as is a result that cannot be, and the request goes on as if it was not
    given; so it does if what
    `respond` or `degrade` returns fails before it has begun to answer.

    Raises:
        TypeError: If an argument is of a wrong type, or both `gate` and `limit` are given.
        ValueError: If an argument is out of its range, or the limit leaves no thread over.

    """

    app: WSGIApp
    #: How many worker threads the server has in this process.
    threads: int
    #: What decides.
    gate: Gate
    #: What exempt requests and streams are asked for: `snapshot()` counts who was refused, as the
    #: log tells. And what degraded answers run under.
    exempt: Gate
    streams: Gate | None
    degraded: SemaphoreLimiter
    #: What all that runs takes a thread of, whatever it is: its limit is below `threads`.
    running: Gate

    def __init__(
        self,
        app: WSGIApp,
        *,
        threads: int,
        gate: Gate | None = None,
        limit: float | BaseLimiter | None = None,
        rules: Sequence[Rule] | Callable[[Environ], Rule | None] = (),
        key: Callable[[Environ], str | None] | None = None,
        headers: Headers = _DEFAULT_HEADERS,
        exempt_limit: int = 16,
        max_streams: int | None = None,
        respond: Respond | None = None,
        degrade: Respond | None = None,
        degrade_limit: int = 16,
        on_reject: Callable[[Environ, Rejection], object] | None = None,
        queue_time_header: str | None = "x-request-start",
        max_queue_time: float | None = None,
    ) -> None:
        self.app = _application(app)
        self.threads = check_threads(threads)
        _check_function("key", key)
        _check_function("respond", respond)
        _check_function("degrade", degrade)
        _check_function("on_reject", on_reject)
        self._key = key_of(cast("Any", key))
        self._respond, self._degrade = respond, degrade
        self._on_reject = on_reject
        self._headers = HeaderReader(headers)
        self._queue_time = QueueTime(queue_time_header, max_queue_time)
        self._server = ServerCheck(threads, self._queue_time.header, self._queue_time.key)
        table = rules if isinstance(rules, Sequence) else ()
        self._rule_of = finder(table)
        _check_table(table, gate)
        function = None if isinstance(rules, Sequence) else _function_of(rules)
        streams = streams_of(max_streams, rules, threads)
        check_count("exempt_limit", exempt_limit)
        check_count("degrade_limit", degrade_limit)
        # Last, since it takes over the limiter that it is given.
        self.gate = gate_for(
            gate,
            limit,
            threads=threads,
            streams=streams,
            beside=degrade is not None or any(rule.exempt or rule.degrade for rule in table),
            has_queue_time=queue_time_header is not None,
            name="wsgi",
        )
        self._find_rule = None if function is None else find_rule(function, self.gate)
        name = self.gate.name
        self._streams = Cap(streams, "streams", self.gate, Reason.STREAMS) if streams else None
        self._exempt = Cap(exempt_limit, "exempt", self.gate)
        self._threads = Threads(threads, self.gate)
        self.streams = None if self._streams is None else self._streams.gate
        self.exempt = self._exempt.gate
        self.running = self._threads.gate
        self.degraded = SemaphoreLimiter(degrade_limit, name=f"{name} degraded")
        _LOG.info("in this process: %r", self)
        warn_if_all_are_admitted(_LOG, self.gate)

    def __repr__(self) -> str:
        streams = "" if self.streams is None else f", max_streams={self.streams.limit:g}"
        return (
            f"{type(self).__name__}(threads={self.threads}, gate={self.gate!r}, "
            f"exempt_limit={self.exempt.limit:g}{streams}, "
            f"queue_time_header={self._queue_time.header!r})"
        )

    @property
    def ignored_queue_times(self) -> int:
        """How many times in queues were told that cannot be, or were not believed."""
        return self._queue_time.ignored

    @property
    def malformed_headers(self) -> int:
        """How many deadlines and criticalities were passed over since they say nothing."""
        return self._headers.malformed

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Run the application, or refuse the request."""
        rule = self._rule(environ) or _NO_RULE
        asked: Asked | None = None
        criticality: Criticality | None = None
        if rule.exempt:
            verdict = self._exempt.take()
        else:
            if not self._server.is_done:
                self._server.look(environ)
            left, criticality, is_trusted = self._headers.read(environ, rule.criticality)
            key = None if self._key is None else self._key(environ)
            if rule.stream and self._streams is not None:
                verdict = self._streams.take(
                    criticality=criticality, deadline=left, operation=rule.operation
                )
            else:
                waited, is_late = self._queue_time.judge(
                    environ, left, self.gate, trusted=is_trusted
                )
                if left is not None:
                    left = max(left - waited, 0.0)
                verdict = self.gate.try_acquire(
                    criticality=criticality,
                    deadline=0.0 if is_late else left,
                    key=key,
                    operation=rule.operation,
                    inner=rule.gate,
                    retry=is_retry(environ),
                )
            if verdict and not (left is None and criticality is None and key is None):
                asked = Asked(deadline_of(left, trusted=is_trusted), criticality, key)
        if not verdict:
            return self._refuse(environ, start_response, verdict, rule)
        if rule.exempt:
            thread = self._threads.take_for_exempt(path_of(environ), self.exempt)
        else:
            thread = self._threads.take(criticality=criticality, operation=rule.operation)
        if not thread:
            verdict.release(Outcome.IGNORED)
            return self._refuse(environ, start_response, thread, rule)
        return self._run(verdict, thread, asked, environ, start_response, rule.max_lifetime)

    def _run(
        self,
        permit: Permit,
        thread: Permit,
        asked: Asked | None,
        environ: Environ,
        start_response: StartResponse,
        max_lifetime: float | None,
    ) -> Iterable[bytes]:
        start = Start(start_response)
        hold = Hold(permit, thread, asked, start)
        environ[PERMIT] = permit

        def refuse(error: BaseException) -> Iterable[bytes] | None:
            rejection = rejection_of(error)
            if rejection is None:
                return None
            if start.status is None:
                return answer_by(self._respond, environ, start_response, rejection)
            return answer(environ, start_response, rejection, info_of(error))

        return run_under(hold, self.app, environ, start, refuse, max_lifetime)

    def _refuse(
        self,
        environ: Environ,
        start_response: StartResponse,
        rejection: Rejection,
        rule: Rule,
    ) -> Iterable[bytes]:
        degraded = self._degraded(environ, start_response, rejection, rule)
        if degraded is not None:
            return degraded
        return self._reject(environ, start_response, rejection)

    def _reject(
        self, environ: Environ, start_response: StartResponse, rejection: Rejection
    ) -> Iterable[bytes]:
        if self._on_reject is not None:
            ask(self._on_reject, environ, rejection)
        return answer_by(self._respond, environ, start_response, rejection)

    def _degraded(
        self, environ: Environ, start_response: StartResponse, rejection: Rejection, rule: Rule
    ) -> Iterable[bytes] | None:
        """Return the cheaper answer, if there is one."""
        degrade: Respond | None = rule.degrade or self._degrade
        # Where there is no thread for it, that is no second refusal.
        if degrade is None or self._threads.is_full:
            return None
        if not (permit := self.degraded.try_acquire()):
            return None
        if not (thread := self._threads.take()):
            permit.release(Outcome.IGNORED)
            return None
        app: WSGIApp | None = ask(degrade, environ, rejection)
        if app is None:
            permit.release(Outcome.IGNORED)
            thread.release(Outcome.IGNORED)
            return None
        start = Start(start_response)
        environ[PERMIT] = permit

        def refuse(error: BaseException) -> Iterable[bytes] | None:
            if start.status is not None or not isinstance(error, Exception):
                return None
            _core.report(error, app)
            return self._reject(environ, start_response, rejection)

        return run_under(Hold(permit, thread, None, start), app, environ, start, refuse, None)

    def _rule(self, environ: Environ) -> Rule | None:
        if self._find_rule is not None:
            found = self._find_rule(environ)
            if found is not None:
                return found
        return self._rule_of(environ.get("REQUEST_METHOD", "GET"), path_of(environ))


def _application(app: Any) -> WSGIApp:
    if not callable(app) or is_coroutine_function(app):
        msg = (
            f"app must be a WSGI application, got {app!r:.100}; for ASGI there is "
            "sluicegate.asgi.LoadSheddingMiddleware"
        )
        raise TypeError(msg)
    application: WSGIApp = app
    return application


def _check_function(name: str, value: Any) -> None:
    check_callable(name, value)
    if value is not None and is_coroutine_function(value):
        msg = f"{name} must not be async, got {value!r:.100}"
        raise TypeError(msg)


def _function_of(rules: Any) -> Callable[[Environ], Rule | None]:
    if not callable(rules):
        finder(rules)  # says what it takes
    _check_function("rules", rules)
    function: Callable[[Environ], Rule | None] = rules
    return function


def _check_table(rules: Sequence[Rule], gate: object) -> None:
    for rule in rules:
        if rule.is_for_websockets:
            msg = f"the rule for {rule.match!r} holds for no request: under WSGI are no websockets"
            raise ValueError(msg)
        if gate is not None:
            check_gate(rule, gate)
