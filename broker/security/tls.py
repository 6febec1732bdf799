"""TLS of a client, as an `ssl.SSLContext`: which versions and suites, and whether the server's name is checked.

key_stores.py gives the context its key and the certificates that it trusts.
"""

from __future__ import annotations

import ssl

from odradek.broker.security.cipher_suites import Negotiable


def client_context(allowed: Negotiable, *, checks_host_name: bool) -> ssl.SSLContext:
    """The server's certificate is always verified; so is its name if `checks_host_name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host_name
    context.minimum_version, context.maximum_version = allowed.versions[0], allowed.versions[-1]
    if allowed.ciphers is not None:
        context.set_ciphers(allowed.ciphers)
    return context
