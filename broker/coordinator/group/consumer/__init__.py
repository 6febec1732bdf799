"""Consumer groups of KIP-848: members say what they subscribe to in heartbeats, and the broker assigns the partitions.

    state.py               the states of groups and members, and all legal transitions
    member.py              a member: who it is, what it is subscribed to, what it has
    subscriptions.py       the topics of all members, by name and by regular expression
    partition_owners.py    in which epoch each partition is owned
    topic_hash.py          the hash by which a change of topics is seen
    reconciliation.py      the next step of a member towards its target

Everything here is a function of its arguments: no clock, no timer, no metadata cache.
"""
