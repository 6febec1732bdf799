"""What a broker does for consumers and followers that fetch.

    running_fetch.py         a Fetch request in progress: reads, and answers now or when enough has arrived
    log_reader.py            reads the partitions of one fetch, as far as its parameters say
    fetch_session.py         sessions (KIP-227): a client sends and receives only what has changed
    fetch_session_cache.py   all sessions, and how one request is read and answered, with a session or without

Callers: `replica_manager.py` and the Fetch handler.
"""
