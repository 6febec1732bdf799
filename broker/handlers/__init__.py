"""From a frame to a response.

    api_row.py, api_table.py    one row for each API: versions, handler, error response, limits
    telemetry_apis.py           the rows that a broker has only if clients push metrics
    releases.py                 what the releases of Kafka served
    handlers.py                 creates every handler with the parts that it uses
    authorization.py            what a row's API asks the authorizer, before its handler
    access.py, audit_log.py     what clients may do, as handlers ask; what of it is logged
    dispatcher.py               decodes, calls the handler, encodes; turns exceptions into error codes
    route.py                    one version's decoder, handler, encoder and counters
    long_requests.py            the same in steps, for requests that name very many things
    error_responses.py          each API's response to a request that failed as a whole
    topic_ids.py                topics that newer versions of a request name by their ids
    answer_size.py, handler_kinds.py, item_faults.py, version_history.py

The APIs, one file for a group:

    records       produce.py, fetch.py, authorized_produce.py, authorized_fetch.py, current_leaders.py,
                  list_offsets.py, delete_records.py
    cluster       api_versions.py, metadata.py, topic_partitions.py, cluster.py, topics.py, create_topics.py,
                  elections.py, reassignments.py, log_dirs.py, features.py
    settings      describe_configs.py, configs.py, config_listing.py, config_resources.py, client_quotas.py
    groups        coordinators.py, groups.py, consumer_groups.py, group_admin.py, offsets.py, offset_fetch.py,
                  zookeeper_commits.py
    transactions  transactions.py, transaction_outcomes.py, add_partitions.py, producers.py
    telemetry     telemetry.py: the clients' own metrics
    security      authenticating.py, scram.py, acls.py; unprotected.py without logins or an authorizer
    brokers       cluster_changes.py, between brokers

Callers: `network`, by `Dispatcher`; `docs.py` reads the table.
"""
