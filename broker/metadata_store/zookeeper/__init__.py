"""The metadata store of a cluster: a session with ZooKeeper, on the event loop.

    codec.py             our operations as ZooKeeper's requests, and back; the bytes are kazoo's
    acls.py              who may do what with new entries
    session_security.py  TLS, the login and the ACLs of a session, by the settings
    connection.py        one connection: the handshake, requests in order, pings
    connector.py         tries the servers until one serves the session
    first_requests.py    whether a server has the data of the cluster; creates the path below which it is
    zookeeper_store.py   the session over one connection after the other: a MetadataStore

Callers: `metadata_store/factory.py`, if zookeeper.connect is set. Needs the extra `zookeeper`
(docs/decisions/zookeeper-on-the-event-loop.md).
"""
