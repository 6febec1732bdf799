"""The admin client of the `odradek` command: it administers any Kafka cluster.

    client.py         one method for each admin request
    connections.py    to any broker, to the controller, to a broker by its id
    client_properties.py    how connections are secured, by a client's property file
    bearer_tokens.py  tokens for SASL OAUTHBEARER
    login_check.py    one login, for clients that do not say why it fails
    groups.py         groups and their offsets; described_groups.py: what is returned of a group
    features.py       features and their levels
    users.py, acls.py  passwords of users, and who may do what
    transactions.py   transactions, and how hanging ones are aborted
    overview.py       brokers, leaders and in-sync replicas at a glance, and what has changed between two glances
    missing_replicas.py    why replicas are not in sync

Callers: `odradek.cli`, `pipeline/kafka/security.py` and tests. The broker itself does not use it.
"""
