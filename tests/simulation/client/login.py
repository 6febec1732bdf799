"""The logins of one client at the brokers: by the brokers' own client side, with nonces from the seed."""

from __future__ import annotations

from random import Random

from odradek.broker.security.sasl.client import ClientCredentials
from odradek.broker.security.sasl.scram import new_nonce
from odradek.clients.logins import log_in
from odradek.clients.network_client import Exchange
from odradek.clients.network_errors import LoginRefused
from tests.simulation.history import History, Outcome
from tests.simulation.login_history import LoggedIn


class Login:
    """`process` is the client's name in the history, and `source` draws its nonces."""

    def __init__(self, history: History, process: str, credentials: ClientCredentials, source: Random) -> None:
        self.credentials = credentials
        self._history = history
        self._process = process
        self._source = source

    async def log_in(self, exchange: Exchange, server: str, *, is_renewal: bool) -> float | None:
        """Logs in. Returns after how many seconds the login is to be renewed, None for never. Raises LoginRefused, and
        what `exchange` raises.
        """
        operation = LoggedIn(process=self._process, user=self.credentials.username, is_renewal=is_renewal)
        self._history.begin(operation)
        try:
            after_s = await log_in(exchange, server, self.credentials, new_nonce(self._source))
        except LoginRefused as error:
            self._history.end(operation, Outcome.FAILED, str(error))
            raise
        except BaseException as error:
            self._history.end(operation, Outcome.UNKNOWN, repr(error))
            raise
        self._history.end(operation, Outcome.OK)
        return after_s
