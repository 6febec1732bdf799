"""What a leader does for producers and for its replicas.

    running_produce.py        a Produce request in progress, from its first append to its response
    appends.py                appends a batch to a partition, and tells whether it is safe
    append_result.py          the result for one partition
    large_appends.py          batches that take longer than one turn of the loop
    verification.py           whether a batch belongs to an open transaction (KIP-890); once_verified.py waits for it
    transaction_markers.py    appends the markers that end a transaction
    deletions.py              DeleteRecords
    isr_proposals.py          sends proposals of in-sync replicas to the controller

Callers: `replica_manager.py`, and the coordinators' runtime.
"""
