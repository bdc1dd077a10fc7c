"""The same cases for the ASGI middleware over every server and framework."""
