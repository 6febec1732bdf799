"""Client connections to other brokers.

    peers.py                   one `Peer` for each broker and purpose
    peer.py                    opens its connection when it is needed, again after it was lost
    network_client.py          one connection: requests and responses
    logins.py                  connections that authenticate by SASL
    network_errors.py          how a request can fail
    inter_broker_protocol.py   the versions of the requests between brokers

Callers: fetchers, the controller's channels, the channel to the controller, the transaction coordinator.
"""
