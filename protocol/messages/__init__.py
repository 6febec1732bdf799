"""The declarations of Kafka's messages, one file for a group of APIs. Other packages import them from their files.

    registry.py    the classes of each API key
    headers.py     the headers of requests and responses

    records        produce.py, fetch.py, list_offsets.py, delete_records.py
    cluster        api_versions.py, features.py, metadata.py, cluster.py, topics.py, reassignments.py, log_dirs.py,
                   configs.py, config_resources.py, client_quotas.py, topic_partitions.py, telemetry.py
    groups         find_coordinator.py, groups.py, group_admin.py, offsets.py, consumer_protocol.py, consumer_groups.py,
                   share_groups.py, share_offsets.py, share_state.py, streams_groups.py
    transactions   producers.py, transactions.py
    security       sasl.py, scram.py, acls.py, delegation_tokens.py
    brokers        replica_control.py, broker_registration.py, quorum.py
    in logs        group_records.py, consumer_group_records.py, share_group_records.py, streams_group_records.py,
                   share_coordinator_records.py, transaction_records.py

Callers: every package that sends, handles or prints messages.
"""
