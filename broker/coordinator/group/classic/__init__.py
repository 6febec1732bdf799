"""Classic groups: the members agree on a protocol, and their leader assigns the partitions.

    state.py               the table of states and legal transitions
    group.py               the state of one group, who may commit, which of its offsets stay
    member.py              a member: what it supports and is subscribed to, and its session
    join.py                JoinGroup
    membership.py          SyncGroup, Heartbeat, LeaveGroup
    rebalance.py           from a change of the members until all have their assignments; the responses
    records.py             the record of a group in `__consumer_offsets`
    settings.py

Callers: the shard, which creates the groups; the coordinator, with the requests of members.
"""
