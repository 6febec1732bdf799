"""The committed offsets of groups. Of a group they know only what every kind promises (`group/group.py`).

    offsets.py       the committed offsets of a shard
    records.py       a committed offset and its record
    commits.py       commits, by members and in transactions
    removal.py       removes offsets: on request, of deleted topics, expired ones; which have expired
    zookeeper.py     versions 0 of the requests, whose offsets are in the metadata store

Callers: the shard, the coordinator, and the handlers of offsets.
"""
