"""The producers of one partition: sequences, epochs and open transactions.

    producer_state.py         all producers; producer_state_entry.py: one of them
    refused_batches.py        sequences that were refused before a producer had a batch
    replay.py                 applies stored batches
    transaction_marker.py     reads the record of a marker
    snapshots.py              the snapshot files of a log; snapshot_format.py: their format

Callers: `log`, and requests that describe producers.
"""
