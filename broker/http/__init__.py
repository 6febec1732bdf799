"""HTTP for the broker's own ports: one server; what is served there are routes of others.

    server.py     connections, limits, and the way from a request to the bytes of its response
    request.py    a request; what is refused

Callers: `broker/metrics` and `broker/console` have the routes of the metrics port, `testing/control` has those
of the control port.
"""
