"""The broker: everything between a socket and a log.

The process, from the outside in:

    serve.py            the process: signals, what it prints, exit codes
    server.py           the broker as a whole: its parts, how they start and how they stop
    protection.py       TLS, logins and the authorizer, and who the broker is to others
    periodic_work.py    everything that runs at intervals, as one table
    start_error.py      why a broker cannot start
    build_info.py       which modules run compiled
    quick_imports.py    what is not imported, so that the start is fast

The rooms, in the order in which a request passes them: network, requests, handlers, replica and coordinator; then
cluster, controller and metadata_store, which agree on who leads what. pyproject.toml has their order as a contract.
"""
