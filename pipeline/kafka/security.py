"""How connections to the brokers are secured: the options in `[kafka]`, which have the names of the Java client.

Spark's connector gets them as they are. kafka-python gets what Odradek's own clients make of them: stores may be PEM,
PKCS12 or PEM in the options themselves, and values may come from config providers. This is the one place where the
pipeline imports the broker: two readers of the same options would differ.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from odradek.clients.admin.client_properties import ClientSecurity, security_of_properties
from odradek.clients.admin.login_check import refused_login
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.storage.files import OsFiles

FILES = OsFiles()
"""One object, so that all clients share their tokens."""


def connection_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Returns the options as arguments of kafka-python's clients. Raises PipelineError."""
    return _security(options).for_kafka_python()


def refuse_wrong_login(settings: Settings, patience_ms: int) -> None:
    """Raises PipelineError if the brokers refuse the login. kafka-python would only time out."""
    problem = refused_login(settings.bootstrap_server, _security(settings.kafka), patience_ms)
    if problem is not None:
        raise PipelineError(problem, "check sasl.mechanism and sasl.jaas.config in [kafka]")


def _security(options: Mapping[str, str]) -> ClientSecurity:
    try:
        return security_of_properties(options, FILES, os.environ)
    except ValueError as error:
        raise PipelineError(f"[kafka] {error}") from error
