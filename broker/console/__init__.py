"""The console: a page on the metrics port that shows what the broker holds and what waits in it; docs/console.md.

    console.py         from a path to an answer: the page, its files, and the JSON of `/api/...`
    queries.py         the parameters of a request
    selection.py       one page of many rows, sorted and searched in steps
    overview.py        the broker, its cluster, roles and in-sync replicas
    topics.py          topics, and the partitions of one
    groups.py          groups, and the members and offsets of one
    hand_overs.py      partitions that go from one member of a consumer group to another
    transactions.py    transactional ids
    connections.py     connections of clients
    clients.py         clients that push metrics of their own, and what one has pushed
    settings.py        settings that differ from their defaults
    waiting.py         what waits in each purgatory; reasons.py: why; requesters.py: for whom
    wheel.py           the timing wheels
    static/            the page: HTML, CSS and JavaScript modules, sent as they are

It reads what the broker holds when it is asked, in steps (background/stepwise.py), changes nothing, and keeps nothing
between two requests: the page keeps the history that it draws.

Callers: `assembly.py`, which gives `Console.answer` to the routes of the metrics port.
"""
