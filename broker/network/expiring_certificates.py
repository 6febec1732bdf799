"""Warns of certificates that expire: from WARN_DAYS before it, once a day, also when it has happened.

A broker goes on with a certificate that has expired, as Kafka does, and its clients refuse it. If one of a trust store
has expired, the broker refuses clients. So the log says which one it is, of which listener, before anybody notices.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from odradek.broker.security.certificate_fields import Dated

DAY_MS = 24 * 60 * 60 * 1000
WARN_DAYS = 30

log = structlog.get_logger("broker.network")


class InUse(NamedTuple):
    """A certificate of a listener. `store`: `keystore` or `truststore`."""

    listener: str
    store: str
    certificate: Dated


class ExpiringCertificates:
    def __init__(self) -> None:
        self._again_ms: dict[InUse, int] = {}
        """When each of those that were warned of is to be mentioned again."""

    def warn(self, in_use: Iterable[InUse], now_ms: int) -> None:
        """Looks at the certificates. Call it often: it warns at once of a new one, and then once a day."""
        again_ms: dict[InUse, int] = {}
        for each in in_use:
            if now_ms < self._again_ms.get(each, 0):
                again_ms[each] = self._again_ms[each]
            elif _warns(each, now_ms):
                again_ms[each] = now_ms + DAY_MS
        self._again_ms = again_ms


def _warns(each: InUse, now_ms: int) -> bool:
    """Logs a warning if there is a reason."""
    dated = each.certificate
    about = {"listener": each.listener, "store": each.store, "subject": dated.subject}
    if now_ms > dated.not_after_ms:
        log.error("certificate has expired", **about, not_after=_text(dated.not_after_ms))
    elif now_ms < dated.not_before_ms:
        log.warning("certificate is not valid yet", **about, not_before=_text(dated.not_before_ms))
    elif dated.not_after_ms - now_ms <= WARN_DAYS * DAY_MS:
        days_left = (dated.not_after_ms - now_ms) // DAY_MS
        log.warning("certificate expires soon", **about, not_after=_text(dated.not_after_ms), days_left=days_left)
    else:
        return False
    return True


def _text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
