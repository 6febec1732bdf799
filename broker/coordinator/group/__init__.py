"""The coordinator of groups: who is a member, who has which partitions, and committed offsets.

    group.py            what every kind of group promises
    member_requests.py  requests of members that speak the classic protocol
    coordinator.py      all groups of this broker: finds the shard of a request
    shard.py            the groups of one partition of `__consumer_offsets`, and their offsets: creates and replays them
    conversion.py       groups with members that change their kind
    cluster_topics.py   what groups know of the cluster's topics
    admin.py            listing, counting and deleting groups of every kind
    offsets/            the committed offsets, which know a group by `group.py`
    classic/            the kind of group whose members choose the assignment themselves
    consumer/           the kind of group whose assignments the broker makes
    assignors/          how it makes them

Callers: the handlers of groups and offsets, the metrics and the console.
"""
