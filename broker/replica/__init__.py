"""The replicas of this broker: leaders append, followers fetch, consumers read.

    replica_manager.py        the partitions on this broker, and the operations on them
    role_changes.py           this broker becomes leader or follower of many partitions together
    log_creations.py          creates the logs of one request together
    log_dirs.py               describes the log directories
    log_dir_moves.py          moves replicas between log directories
    leadership_listener.py    how a coordinator hears of the leadership of its partitions

The rooms, from below: `partition/` is the state of one partition, `quota/` limits how fast replicas are copied,
`leader/` appends and proposes in-sync replicas, `fetch/` answers Fetch requests, `follower/` follows other leaders.
Callers: handlers, coordinators, `cluster`.
"""
