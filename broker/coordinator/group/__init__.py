"""The coordinator of classic groups: who is a member, who has which partitions, and committed offsets.

Membership:

    coordinator.py      all groups of this broker: finds the shard of a request
    shard.py            the groups of one partition of `__consumer_offsets`
    group_state.py      the table of states and legal transitions
    group.py, member.py, settings.py
    join.py             JoinGroup
    membership.py       SyncGroup, Heartbeat, LeaveGroup
    rebalance.py        from a change of the members until all have their assignments
    sessions.py         members that send nothing are removed
    responses.py, records.py

Offsets:

    offsets.py, offset_records.py           the committed offsets of a shard, and their records
    offset_commits.py, offset_fencing.py    commits, and who may commit
    offset_expiry.py, offset_removal.py     what is removed, and when
    zookeeper_offsets.py                    versions 0, whose offsets are in the metadata store

Callers: the handlers of groups and offsets, and the metrics.
"""
