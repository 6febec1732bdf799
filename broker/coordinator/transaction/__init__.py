"""The coordinator of transactions.

    transaction_state.py      the table of states and legal transitions
    transaction.py            the state of one transactional id
    rules.py                  what a producer may do, and the error otherwise
    coordinator.py            InitProducerId, AddPartitionsToTxn, EndTxn
    shard.py, records.py      the ids of one partition of `__transaction_state`
    state_change_log.py       logs each change of state
    timeouts.py               aborts transactions that are open for too long, and deletes unused ids
    producer_ids.py           producer ids that no other broker gives out
    marker_writing.py         writes the markers when a transaction has ended:
    local_markers.py          ... to the logs of this broker,
    remote_markers.py         ... to other brokers
    remote_verification.py    asks other coordinators whether a transaction is open, or to add partitions to it;
                              peer_queue.py is its queue, too

Callers: the handlers of transactions, and `replica/leader/verification.py` by callables.
"""
