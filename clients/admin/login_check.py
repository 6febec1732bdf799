"""Logs in once, for clients that do not say why a login fails."""

from __future__ import annotations

import asyncio
from random import SystemRandom

from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.client_properties import ClientSecurity
from odradek.clients.network_errors import LoginRefused, NetworkError


def refused_login(bootstrap: str, security: ClientSecurity, timeout_ms: int) -> str | None:
    """Returns why the brokers refuse the login. None: they accept it, or nobody logs in, or something else is wrong,
    which the client says that connects next. Must not be called within an event loop.
    """
    if security.login is None:
        return None

    async def ask() -> None:
        async with AdminClient(bootstrap, timeout_ms=timeout_ms, connect=security.connect(SystemRandom())) as admin:
            await admin.broker_ids()

    try:
        asyncio.run(ask())
    except LoginRefused as refused:
        return str(refused)
    except NetworkError:
        return None
    return None
