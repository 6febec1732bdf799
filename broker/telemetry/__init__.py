"""The clients' own metrics (KIP-714): who pushes what and how often, and what has been pushed.

    subscriptions.py      the settings of subscriptions, and which of them match a client
    client_instances.py   the clients that the broker knows, until they disconnect or are silent for too long
    otlp.py               from the bytes of a push to points, in steps
    client_series.py      the points, bounded in number, for `/metrics` and the console
    client_telemetry.py   these together, for one broker

Nothing here is imported unless odradek.client.metrics.enable is true. Callers: `handlers/telemetry.py`, `metrics`,
`console`, `assembly.py`.
"""
