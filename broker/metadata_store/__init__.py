"""The metadata store: a small tree of entries, as ZooKeeper has it, where topics, settings and ids are kept.

    interface.py        what a store promises, by letter; its operations and errors
    znodes.py           the paths and values of the entries: Apache Kafka's own
    entity_names.py     users, clients and addresses as names of entries
    acl_znodes.py       those of ACLs
    znode_values.py     JSON, and the limits of what requests can carry
    read_back.py        calls and changes whose response was lost with the connection
    one_watch.py        a path that has at most one watch at a time
    factory.py          chooses the store by the settings, and makes it
    start_up.py         the first steps of a broker: fixed entries, cluster id
    session_metrics.py  what a session with a shared store counts
    tree.py             entries in memory; operations are checked, then applied
    watch_table.py      the watches of a session: who is notified of which change
    embedded_store.py   the store of a broker alone: the tree, with a journal and a snapshot on disk
    journal.py          the format of the two files
    journal_disk.py     writes them
    frozen_store.py     the content at one instant, for a snapshot of `odradek.testing`
    migration_note.py   a third file: the content of the two was copied to ZooKeeper

`shared/` serves several brokers in one process. Callers: `controller` (by interface.py, znodes.py, read_back.py and
one_watch.py only), `cluster`, offsets of version 0, `cli/migration`, and `server.py`.
"""
