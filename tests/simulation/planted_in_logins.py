"""Bugs of logins and access rules, which seeds with security find: see planted.py."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.handlers.authenticating import Session
from odradek.broker.handlers.authorized_fetch import AuthorizedFetchHandler
from odradek.broker.security.sasl.plain import Passwords
from odradek.broker.security.sasl.scram import ScramServer
from tests.simulation.planted_in_sessions import Replace


def _need_no_proof(replace: Replace) -> None:
    def final(self: ScramServer, token: bytes, begun: Any) -> bytes:
        self.username = begun.name
        mechanism = self._mechanism
        signed = begun.messages + b"," + re.sub(rb",p=.*", b"", token)
        return b"v=" + base64.b64encode(mechanism.hmac(begun.credential.server_key, signed))

    replace(ScramServer, "_final", final)
    replace(Passwords, "are_right", lambda self, name, password: True)


def _serve_after_the_session(replace: Replace) -> None:
    begin = Session.__init__

    def begin_without_end(self: Session, *options: Any) -> None:
        begin(self, *options)
        self._expires_ms = 1 << 62

    replace(Session, "__init__", begin_without_end)


def _let_anybody_follow(replace: Replace) -> None:
    replace(AuthorizedFetchHandler, "_refused_to_follower", lambda self, fetch, context: {})


LOGIN_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "a login needs no proof": _need_no_proof,
    "a session does not end": _serve_after_the_session,
    "anybody may fetch as a follower": _let_anybody_follow,
}
"""How to plant each bug."""
