"""`/metrics` for Prometheus and `/health` for orchestrators.

    families.py       the table of metrics
    sources.py        the parts of the broker that they are read from
    exposition.py     the text of `/metrics`
    server.py         serves it over HTTP; http_request.py parses a request
    pages.py          what else is served there: the console's pages (broker/console)

Callers: `server.py`.
"""
