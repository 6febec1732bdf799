"""A metadata store in memory that several brokers of one process share: for `odradek.testing`.

    ensemble.py       the tree, the sessions that change it, what watches it: also under the tests' model of ZooKeeper
    shared_store.py   the store, and what a test can do to its sessions
    session.py        a broker's session: a MetadataStore over a connection that can break
    connection.py     the requests and responses between the two

Callers: `testing`, tests (docs/decisions/one-ensemble-two-ways.md).
"""
