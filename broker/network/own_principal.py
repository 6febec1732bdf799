"""Who this broker is to the other brokers, if the listener between them uses TLS without a login.

A handshake in memory, of this broker with its own listener, tells: the others have the same settings.
"""

from __future__ import annotations

import ssl

from odradek.broker.network.listener_tls import tls_of_listeners, tls_to_brokers
from odradek.broker.settings.config import BrokerConfig
from odradek.storage.files import Files

MOST_ROUNDS = 5


def principal_by_certificate(config: BrokerConfig, files: Files) -> str:
    """Returns the principal that the broker's certificate gets; User:ANONYMOUS if the listener asks for none.

    Raises ConfigError; SSLError if the listener would refuse this broker; ValueError if no rule maps its name.
    """
    context = tls_to_brokers(config, files)
    assert context is not None
    context.check_hostname = False
    listener = tls_of_listeners(config, files)[config.inter_broker_listener]
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    server = listener.new_session(to_server, to_client)
    for _ in range(MOST_ROUNDS):
        if _is_done(client) & _is_done(server):
            break
    return listener.principal_of(server)


def _is_done(session: ssl.SSLObject) -> bool:
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
