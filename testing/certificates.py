"""Certificates for the brokers of a process and their clients: one authority, made when it is first needed.

They are good for 127.0.0.1 and localhost, where the brokers listen. Nothing outside the process trusts the authority,
and its key is stored nowhere. Needs the package `cryptography`.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from odradek.broker.security.key_stores import Store, load_key
from odradek.broker.start_error import StartError

if TYPE_CHECKING:
    from odradek.broker.security.certificate_authority import Authority, Signed, Validity

HOSTS = ("localhost", "127.0.0.1", "::1")
DAYS = 365
"""More than any test runs."""


def trusted() -> str:
    """Returns the certificate of the authority in PEM. Raises StartError."""
    return _authority().pem.decode()


@cache
def certificate_of_brokers(name: str) -> Signed:
    """Returns the key and the certificate that all brokers share. Raises StartError."""
    return _issued(name, *HOSTS)


@cache
def certificate_of(user: str) -> Signed:
    """Returns a client's key and certificate, with the common name `user`. Raises StartError."""
    return _issued(user)


def context_of_client(user: str | None) -> ssl.SSLContext:
    """Returns the TLS of a client that trusts the brokers and, if `user` is given, shows a certificate. Raises
    StartError.
    """
    context = ssl.create_default_context(cadata=trusted())
    if user is not None:
        load_key(context, Store("the client's certificate", certificate_of(user).pem))
    return context


@cache
def _authority() -> Authority:
    try:
        from odradek.broker.security.certificate_authority import Authority
    except ModuleNotFoundError as error:
        raise StartError(
            f"TLS in tests needs a package that is missing ({error.name}): pip install 'odradek[security]'"
        ) from error
    return Authority.create("Odradek in this process", _validity())


def _issued(name: str, *hosts: str) -> Signed:
    return _authority().sign(name, *hosts, validity=_validity())


def _validity() -> Validity:
    from odradek.broker.security.certificate_authority import Validity

    return Validity.days(datetime.now(UTC), DAYS)
