"""This broker as a member of a cluster. A broker with a store of its own is a cluster of one.

    links.py             its ways to the metadata store, the controller and the other brokers, made first
    active_controller.py how this broker asks the controller, wherever it is
    registration.py      the ephemeral entry `/brokers/ids/N`, which lives as long as the broker
    member.py            what it carries out for the controller, made last; joining and leaving the cluster
    deltas.py            what changes in the cluster: roles, topics, brokers, settings, ACLs, features; all applied here
    changes.py           the queue of what the controller sends, a source of deltas
    store_follower.py    follows what brokers change in the metadata store, the other source: settings and ACLs
    settings_in_effect.py   the settings of topics and brokers, as they are applied
    dynamic_configs.py   the settings of topics, brokers, users, groups and client metrics in the store
    named_settings.py    of those the settings of groups and client metrics
    user_credentials.py  users' credentials for SCRAM, among their settings
    stored_quotas.py     quotas of clients, among the same settings; nothing applies them
    stored_acls.py       the ACLs in the store, for the authorizer
    feature_follower.py  the finalized levels of features in the store
    first_credentials.py the credentials that a start adds
    known_topics.py      whose logs the broker loads when it starts
    offline_replicas.py  reports replicas whose disk has failed, and brings them back when it can be written again

Callers: `assembly.py`, `server.py`, periodic work and the handlers.
"""
