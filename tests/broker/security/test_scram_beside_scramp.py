"""Both sides of SCRAM against scramp, another implementation of RFC 5802."""

from __future__ import annotations

import random
import string

import pytest
import scramp

from odradek.broker.security.sasl.client import ClientCredentials, NotTheServer, tokens
from odradek.broker.security.sasl.mechanism import LoginRefused
from odradek.broker.security.sasl.scram import MECHANISMS, ScramServer, Unknown, new_nonce, new_salt

LOGINS = 20
NAMES, PASSWORDS = string.ascii_letters + string.digits + "._-@", string.printable[:94]


class Login:
    """Who logs in, drawn from a seed. `given` is the password that the client knows."""

    def __init__(self, mechanism: str, seed: int, *, is_right: bool = True) -> None:
        self.random = random.Random(f"{mechanism} {seed}")
        self.mechanism = MECHANISMS[mechanism]
        self.user = self._text(NAMES)
        self.password = self._text(PASSWORDS)
        self.given = self.password if is_right else self.password + "x"
        self.iterations = self.random.randint(4096, 5000)
        self.salt = new_salt(self.random)

    def _text(self, characters: str) -> str:
        return "".join(self.random.choices(characters, k=self.random.randint(1, 30)))

    def server(self) -> ScramServer:
        salted = self.mechanism.salted_password(self.password, self.salt, self.iterations)
        credential = self.mechanism.credential(salted, self.salt, self.iterations)
        return ScramServer(self.mechanism, {self.user: credential}.get, Unknown(b"x"), new_nonce(self.random))

    def their_client(self) -> scramp.ScramClient:
        return scramp.ScramClient([self.mechanism.name], self.user, self.given)

    def their_server(self) -> scramp.core.ScramServer:
        known = scramp.ScramMechanism(self.mechanism.name)
        stored = known.make_auth_info(self.password, iteration_count=self.iterations, salt=self.salt)
        return known.make_server({self.user: stored}.__getitem__)


def with_their_client(login: Login) -> str | None:
    """Logs in at our server; returns who has."""
    server, client = login.server(), login.their_client()
    client.set_server_first(server.evaluate(client.get_client_first().encode()).decode())
    client.set_server_final(server.evaluate(client.get_client_final().encode()).decode())
    return server.username


def at_their_server(login: Login) -> None:
    """Logs in at scramp's server."""
    server = login.their_server()
    client = tokens(ClientCredentials(login.mechanism.name, login.user, login.given), new_nonce(login.random))
    server.set_client_first(next(client).decode())
    server.set_client_final(client.send(server.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        client.send(server.get_server_final().encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_their_client_and_our_server_agree(mechanism: str) -> None:
    for seed in range(LOGINS):
        login = Login(mechanism, seed)
        assert with_their_client(login) == login.user


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_and_their_server_agree(mechanism: str) -> None:
    for seed in range(LOGINS):
        at_their_server(Login(mechanism, seed))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_servers_refuse_another_password(mechanism: str) -> None:
    with pytest.raises(LoginRefused):
        with_their_client(Login(mechanism, 0, is_right=False))
    with pytest.raises((scramp.ScramException, NotTheServer)):
        at_their_server(Login(mechanism, 0, is_right=False))
