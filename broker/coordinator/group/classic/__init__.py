"""Classic groups: the members agree on a protocol, and their leader assigns the partitions.

    state.py               the table of states and legal transitions
    group.py, member.py    the state of one group, who may commit, which of its offsets stay
    protocols.py           what its members support and are subscribed to
    join.py                JoinGroup
    membership.py          SyncGroup, Heartbeat, LeaveGroup
    rebalance.py           from a change of the members until all have their assignments
    sessions.py            members that send nothing are removed
    responses.py           the responses to these requests
    records.py             the record of a group in `__consumer_offsets`
    settings.py

Callers: the shard, which creates the groups; the coordinator, with the requests of members.
"""
