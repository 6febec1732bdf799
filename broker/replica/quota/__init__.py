"""How fast replicas may be copied: the throttle of reassignments. (KIP-73)

    sampled_rate.py        the rate of the last seconds, as Kafka measures it
    replication_quota.py   a limit of that rate, for what leaders send or for what followers receive

Callers: `fetch` for leaders, `follower` for followers; the replica manager has both quotas.
"""
