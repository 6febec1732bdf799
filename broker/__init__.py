"""The broker: everything between a socket and a log.

The process, from the outside in:

    serve.py            the process: signals, what it prints, exit codes
    server.py           the life of a broker: how its parts start and how they stop
    assembly.py         its parts, each made from those before it
    broker_security.py  TLS, logins and the authorizer, and who the broker is to others
    sasl_mechanisms.py  the mechanisms of logins, and who may log in, from the settings
    periodic_work.py    everything that runs at intervals, as one table
    start_error.py      why a broker cannot start
    build_info.py       which modules run compiled
    quick_imports.py    what is not imported, so that the start is fast
    regular_expressions.py   those that clients choose

The rooms, in the order in which a request passes them: network, requests, handlers, replica and coordinator; then
cluster, controller and metadata_store, which agree on who leads what. pyproject.toml has their order as a contract.
"""
