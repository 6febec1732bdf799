"""This broker as a client of others: `clients/` has the connections.

    peers.py                   one `Peer` for each broker and purpose
    peer.py                    opens its connection when it is needed, again after it was lost
    inter_broker_protocol.py   the versions of the requests between brokers

Callers: fetchers, the controller's channels, the channel to the controller, the transaction coordinator.
"""
