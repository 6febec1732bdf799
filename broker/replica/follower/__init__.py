"""How this broker follows the partitions that other brokers lead.

    fetcher_manager.py        all fetchers: adds and removes partitions
    fetcher.py                one fetcher: decides, synchronously, what to do next
    fetcher_actions.py        its decisions; fetcher_state.py: what it knows of a partition
    fetcher_loop.py           carries out what it decides: sends, truncates, flushes, waits
    follower_requests.py      its requests
    fetch_session_client.py   its side of a fetch session (KIP-227)
    fetcher_stats.py, fetcher_settings.py

Callers: `role_changes.py`, `cluster`.
"""
