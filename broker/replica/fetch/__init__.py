"""What a broker does for consumers and followers that fetch.

    running_fetch.py         a Fetch request in progress: reads, and answers now or when enough has arrived
    fetches.py               what all of them share
    fetch_params.py          the parameters of a fetch, and how far it may read
    log_reader.py            reads the partitions of one fetch
    cold_reads.py            reads that would stop the loop: in a thread, or in steps
    fetch_session.py         sessions (KIP-227): a client sends and receives only what has changed
    fetch_session_cache.py   all sessions, and their eviction
    fetch_context.py         how one request is read and answered, with a session or without

Callers: `replica_manager.py` and the Fetch handler.
"""
