"""`odradek cluster migrate`: copies the metadata of a stopped single node to ZooKeeper.

    migrate.py    all of it, in order: what is checked, copied and said
    node.py       the stopped node: its locks, its ids and its note
    entries.py    which of its entries are copied, and in which order
    target.py     what is in ZooKeeper already, and what is missing
    copying.py    writes what is missing

What becomes of the node's own files is in `metadata_store/migration_note.py`. Caller: the command line.
"""
