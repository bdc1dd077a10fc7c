"""The demonstration behind ``sluicegate demo``: one app, twice, with and without protection.

Two server processes run the same FastAPI app on 127.0.0.1. Both are driven with the same
arrivals, first at what the app can do and then at three times that. One of them refuses
what it cannot do; the other accepts everything.

The numbers that both sides of the demonstration have to agree on stand here.
"""

from typing import Final

CONNECTIONS: Final = 10
"""Database connections in the app's pool: the resource that bounds the service."""

QUERY_SECONDS: Final = 0.05
"""How long one request holds its connection, in seconds."""

NOMINAL_CAPACITY: Final = CONNECTIONS / QUERY_SECONDS
"""Requests per second that the pool allows on paper."""

DEFAULT_LIMIT: Final = 2 * CONNECTIONS
"""Requests in flight in the protected server.

One in each connection, and as many again that are ready to take over the moment a connection
comes back, so that the pool does not idle between two arrivals. More would only wait longer:
at 20 in flight and 200 per second a request spends 20 / 200 = 0.1 s inside.
"""

WORK_PATH: Final = "/orders"
"""The route that the load asks for."""

PROBE_PATH: Final = "/healthz"
"""The route that tells what is in flight; exempt from shedding, like every health probe."""

PATIENCE_SECONDS: Final = 2.0
"""How long a client waits for an attempt before it disconnects."""

OVERLOAD_FACTOR: Final = 3.0
"""Offered load of the second phase as a multiple of the capacity."""

LIMIT_VARIABLE: Final = "_SLUICEGATE_DEMO_LIMIT"
"""Environment variable with the limit of the protected server's process."""

LIFELINE_VARIABLE: Final = "_SLUICEGATE_DEMO_LIFELINE"
"""Environment variable with the descriptor of a pipe that ends with the demo's own process."""


class DemoError(Exception):
    """The demonstration could not go on; the message is one line for the user."""
