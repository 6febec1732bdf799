"""Kafka's wire protocol: bytes in, objects out. No I/O.

Messages:

    schema.py           how a message is declared
    compiler.py         compiles a message and a version to a reader and a writer: reader_source.py, writer_source.py,
                        source_lines.py, element_sizes.py
    primitives.py       varints, texts, uuids, tagged fields
    headers.py, framing.py, api_keys.py, errors.py, wire_codes.py, topic_partition.py
    messages/           the messages themselves

Records:

    records.py          what other packages import: the parts follow
    batch_header.py     the header of a batch
    record.py, batch_contents.py, plain_batch.py, control_records.py   records and batches, read and built
    record_validation.py, record_walk.py, record_rules.py, append_allowance.py   what a leader checks
    leader_assignment.py                offsets, epoch and time
    timestamp_search.py                 the first record after a time
    compression.py, codecs.py, snappy_elements.py, compression_errors.py

For people, as `odradek show --hex` prints bytes: inspected_lines.py, readable.py, documents.py, batch_documents.py.

Callers: every package. It imports none of them.
"""
