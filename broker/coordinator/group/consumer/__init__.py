"""Consumer groups of KIP-848: members say what they subscribe to in heartbeats, and the broker assigns the partitions.

    state.py               the states of a group, and all legal transitions
    member_state.py        the same of a member
    group.py               the state of one group, changed by the replay of records alone
    member.py              a member: who it is, what it is subscribed to, what it has
    subscriptions.py       the topics of all members, by name and by regular expression
    partition_owners.py    in which epoch each partition is owned
    topic_hash.py          the hash by which a change of topics is seen
    metadata_hash.py       the hash of a group after a change
    heartbeat.py           ConsumerGroupHeartbeat of members that join and stay
    leaving.py             members that leave, leave for a while, or are fenced
    departures.py          lets members that go at once go together
    classic_members.py     JoinGroup, SyncGroup, Heartbeat, LeaveGroup of members that speak the classic protocol
    embedded_protocol.py   the bytes in them: subscriptions and assignments
    regex.py               when regular expressions are resolved, and what their results lead to
    target.py              when the target assignment is computed, and of what
    reconciliation.py      the next step of a member towards its target
    outcome.py             what all of these return: records, a response, timers, and work to begin
    commits.py             who may commit and fetch offsets
    description.py         a group as ConsumerGroupDescribe returns it
    records.py             the records in `__consumer_offsets`
    replay.py              applies them
    topics.py              what is known of the cluster's topics
    settings.py            the settings of a group in effect

    requests.py            carries out what requests and timers lead to
    timers.py              sessions, the steps that members must take, and assignments in the timing wheel

Only replay changes a group: a function reads it and returns an `Outcome`. Except in the last two files nothing here has
a clock or a timer, and nothing a metadata cache.
"""
