"""What a leader does for producers and for its replicas.

    appends.py                appends a batch to a partition, and tells whether it is safe
    large_appends.py          batches that take longer than one turn of the loop
    verification.py           whether a batch belongs to an open transaction (KIP-890)
    transaction_markers.py    appends the markers that end a transaction
    deletions.py              DeleteRecords
    isr_proposals.py          sends proposals of in-sync replicas to the controller

Callers: the Produce handler, `replica_manager.py`, and the coordinators' runtime.
"""
