"""This broker as a member of a cluster. A broker with a store of its own is a cluster of one.

    member.py               wires what connects the broker to the metadata store, the controller and the other brokers
    registration.py         the ephemeral entry `/brokers/ids/N`, which lives as long as the broker
    changes.py              the queue of what the controller sends: roles of replicas, and metadata
    controller_channel.py   this broker's requests to the active controller
    dynamic_configs.py      the settings of topics and brokers in the store
    known_topics.py         whose logs the broker loads when it starts
    disk_failures.py        replicas whose disk has failed are reported to the controller

Callers: `server.py`, the coordinators and the handlers.
"""
