"""The controller: one broker of the cluster decides which replicas exist, who leads them and what all brokers know.

How a broker becomes the controller, and stops being it:

    controller.py               the controller of one broker: it answers what brokers ask
    terms.py                    standing for election, beginning a term, resigning
    controller_election.py      the race for the entry of the controller
    term.py                     one term, with everything that it knows and does
    events.py                   its events, one after the other
    loading.py                  what a new controller reads first
    fenced_store.py             its writes, which fail once another controller is elected
    pieces.py                   writes that are too long for one transaction
    watches.py                  its watches, which end with it

What it knows, and the decisions that have no side effects:

    controller_context.py       brokers, topics, states of partitions, deletions, reassignments
    partition_states.py, replica_states.py                    a table of states and legal moves each
    topic_planner.py, topic_operations.py, assignment.py      new topics and partitions: planned, and stored
    reassignment_decisions.py   the steps of a reassignment

What clients ask:

    topic_requests.py           to create, delete and extend topics, with their timeouts
    creation_requests.py        CreateTopics, which brokers send, too
    replica_requests.py         elections and reassignments
    feature_requests.py         levels of features

What changes the cluster:

    topic_changes.py, topic_deletions.py   topics
    broker_changes.py                      brokers that start, stop or lose a disk
    isr_changes.py                         AlterPartition
    elections.py, reassignments.py         on request, or to balance the leaders
    stored_requests.py                     requests that tools put into the store
    stored_topics.py                       topics and partitions that tools put into the store
    feature_updates.py                     the finalized levels of features
    producer_id_blocks.py                  blocks of producer ids
    partition_changes.py                   writes the new states

What it sends, and who waits for it:

    control_requests.py, control_channels.py   LeaderAndIsr, UpdateMetadata and StopReplica to each broker
    request_waits.py                           requests that wait until a change is complete

It uses the metadata store by its interface only. Callers: `cluster`, whose `active_controller.py` asks the controller
wherever it is, and the metrics; handlers by the interface in `metadata/administration.py`.
"""
