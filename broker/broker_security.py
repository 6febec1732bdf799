"""What protects a broker, as its settings say: TLS, logins and the authorizer; and who the broker is to the others.

A broker that has none of them imports nothing of them, which keeps its start short.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from odradek.broker.requests.request_context import ANONYMOUS
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.wire_codes import AclOperation, AclResourceType
from odradek.storage.files import Files

if TYPE_CHECKING:
    from odradek.broker.network.certificates import Certificates
    from odradek.broker.network.rounds import Dispatch
    from odradek.broker.network.socket_server import Admit
    from odradek.broker.security.authentication_counts import AuthenticationCounts
    from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer
    from odradek.broker.security.sasl.authentication import SaslListener
    from odradek.broker.security.sasl.client import ClientCredentials
    from odradek.broker.security.sasl.scram import StoredCredentials
    from odradek.clients.network_client import Connect

log = structlog.get_logger("broker")


class BrokerSecurity:
    """`connect` connects to other brokers. `counts`: the authentications of each listener, by name. Raises
    ConfigError.
    """

    def __init__(
        self,
        config: BrokerConfig,
        files: Files,
        source: random.Random,
        connect: Connect | None,
        counts: Mapping[str, AuthenticationCounts],
    ) -> None:
        config.check_protection()
        self._config = config
        self._files = files
        self._random = source
        self._connect = connect
        self._counts = counts
        self.certificates = self._new_certificates()
        """None without TLS."""
        self.authorizer = self._new_authorizer()
        """None if every client may do everything."""

    def _new_certificates(self) -> Certificates | None:
        if not any(listener.uses_tls for listener in self._config.listeners):
            return None
        from odradek.broker.network.certificates import Certificates

        return Certificates(self._config, self._files, self._counts)

    def _new_authorizer(self) -> AclAuthorizer | None:
        values = self._config.authorizer()
        if values is None:
            return None
        from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer

        return AclAuthorizer(values.super_users, allow_everyone_if_no_acl_found=values.allow_everyone_if_no_acl_found)

    def connect_to_brokers(self) -> Connect | None:
        """Returns what connects to other brokers, as the listener between brokers asks for. None: in clear text and
        without a login. Raises ConfigError.
        """
        connect = self._connect_by_tls()
        credentials = self._credentials()
        if credentials is None:
            return connect
        from odradek.broker.security.sasl.scram import new_nonce
        from odradek.clients.logins import logged_in
        from odradek.clients.network_client import NetworkClient

        return logged_in(connect or NetworkClient.connect, credentials, lambda: new_nonce(self._random))

    def _connect_by_tls(self) -> Connect | None:
        if self.certificates is None:
            return self._connect
        from odradek.clients.network_client import NetworkClient

        connect, certificates = self._connect or NetworkClient.connect, self.certificates

        async def connect_by_tls(host: str, port: int, **options: Any) -> NetworkClient:
            return await connect(host, port, tls=certificates.to_brokers, **options)

        return connect_by_tls

    def authentication(self, stored: StoredCredentials, dispatch: Dispatch) -> dict[str, Admit]:
        """Returns, by listener, what makes the clients of a connection authenticate first. Raises ConfigError."""
        if not self._config.sasl_listeners():
            return {}
        from odradek.broker.handlers.authenticating import Authenticating
        from odradek.broker.sasl_mechanisms import sasl_listeners_of

        def admit(listener: SaslListener) -> Admit:
            return lambda info: Authenticating(listener, dispatch).begin(info)

        listeners = sasl_listeners_of(self._config, self._files, stored, self._random, self._counts)
        return {name: admit(listener) for name, listener in listeners.items()}

    def warn_of_own_rights(self) -> None:
        """Logs a warning if other brokers would refuse what this one sends them. Its rights may come later."""
        if self.authorizer is None:
            return
        try:
            principal = self._own_principal()
        except (OSError, ValueError) as error:  # SSLError is an OSError
            log.warning("other brokers refuse the certificate of this one", reason=str(error))
            return
        if not self.authorizer.allows_from_somewhere(
            principal, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME
        ):
            log.warning(
                "other brokers refuse what this one sends",
                principal=principal,
                reason="it is not in super.users, and no ACL allows it CLUSTER_ACTION on the cluster",
            )

    def _own_principal(self) -> str:
        """Who this broker is to the others. Raises SSLError, ValueError."""
        credentials = self._credentials()
        if credentials is not None:
            return f"User:{credentials.username}"
        name = self._config.inter_broker_listener
        if self.certificates is None or name not in self.certificates.listeners:
            return ANONYMOUS
        return self.certificates.own_principal()

    def _credentials(self) -> ClientCredentials | None:
        """Returns with what this broker logs in to others, None if the listener between brokers has no SASL. Raises
        ConfigError.
        """
        if not self._config.sasl_listeners():
            return None
        from odradek.broker.sasl_mechanisms import login_between_brokers

        return login_between_brokers(self._config, self._files)
