"""`/metrics` for Prometheus and `/health` for orchestrators.

    families.py       the table of metrics
    own_of_clients.py the metrics that clients push
    sources.py        the parts of the broker that they are read from
    exposition.py     the text of `/metrics`
    routes.py         what the metrics port serves: these, and the console's pages (broker/console); who may read it

Callers: `server.py`, `assembly.py`.
"""
