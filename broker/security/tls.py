"""TLS of a client and of a server, as an `ssl.SSLContext`: which versions and suites, and who is verified.

key_stores.py gives the context its key and the certificates that it trusts. As in Java, a trusted certificate need not
be that of an authority: one that signs itself, or that an authority below the root has, is trusted as it is.
"""

from __future__ import annotations

import ssl

from odradek.broker.security.cipher_suites import Negotiable

CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
"""What ssl.client.auth demands."""
MOST_ROUNDS = 10
"""More than any handshake needs."""


def client_context(allowed: Negotiable, *, checks_host_name: bool) -> ssl.SSLContext:
    """The server's certificate is always verified; so is its name if `checks_host_name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host_name
    return _restricted(context, allowed)


def server_context(allowed: Negotiable, client_auth: str) -> ssl.SSLContext:
    """`client_auth`: `none`, `requested` or `required`. A certificate that a client shows is always verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = CLIENT_AUTH[client_auth]
    context.options |= ssl.OP_NO_RENEGOTIATION
    return _restricted(context, allowed)


def _restricted(context: ssl.SSLContext, allowed: Negotiable) -> ssl.SSLContext:
    context.minimum_version, context.maximum_version = allowed.versions[0], allowed.versions[-1]
    if allowed.ciphers is not None:
        context.set_ciphers(allowed.ciphers)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Tries whether a client and a server with these contexts agree; `client` must not check host names. Returns the
    server's side. Raises SSLError.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client_side, server_side]
    for _ in range(MOST_ROUNDS):
        waiting = [side for side in waiting if not _is_done(side)]
        if not waiting:
            return server_side
    raise ssl.SSLError("the handshake does not end")


def _is_done(side: ssl.SSLObject) -> bool:
    """Takes the next step of a handshake. Returns whether it was the last one."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def explained(error: ssl.SSLError) -> str:
    """What went wrong, without the place in OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
