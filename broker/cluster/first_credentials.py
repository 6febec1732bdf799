"""The credentials that a start adds, so that somebody can log in before anybody has set a password.

(A) A line of the file is MECHANISM=[name=NAME,password=PASSWORD] or MECHANISM=[name=NAME,iterations=N,
    password=PASSWORD], as `kafka-storage format --add-scram` takes it. The password extends to the last bracket.
    Blank lines and lines that begin with # are comments.
(B) A user who has a credential for the mechanism keeps it: a password that was changed later is not undone.
(C) An error names the file and the line, and quotes nothing of it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import NamedTuple

from odradek.broker.background.stepwise import Steps
from odradek.broker.cluster.dynamic_configs import ConfigChange, DynamicConfigs
from odradek.broker.cluster.user_credentials import user_path
from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.security.sasl.scram import (
    LEAST_ITERATIONS,
    MECHANISMS,
    MOST_ITERATIONS,
    ScramMechanism,
    new_salt,
)
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.protocol.errors import ProtocolError
from odradek.storage.files import Files

SETTING = BrokerConfig.odradek_scram_credentials_file.name
_LINE = re.compile(r"([^=\s]+)=\[name=([^,\]]+)(?:,iterations=([0-9]{1,9}))?,password=(.+)\]")


class FirstCredential(NamedTuple):
    """A line of the file."""

    mechanism: ScramMechanism
    user: str
    iterations: int
    password: str

    def __repr__(self) -> str:
        return f"FirstCredential({self.mechanism.name}, {self.user})"


async def add_first_credentials(path: str, files: Files, configs: DynamicConfigs, source: random.Random) -> None:
    """Adds the credentials of a file (B). `source` draws the salts. Raises ConfigError, MetadataStoreError."""
    try:
        text = files.read_file(path).decode()
    except OSError as error:
        raise ConfigError(SETTING, f"{SETTING}={path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(SETTING, f"{SETTING}={path}: the file is not UTF-8") from error
    for credential in parse_first_credentials(text, path):
        if configs.users.credential(credential.mechanism.name, credential.user) is None:
            try:
                await configs.alter_user(credential.user, _addition(credential, source))
            except ProtocolError as error:
                raise MetadataStoreError(user_path(credential.user), f"not stored: {error.error_message}") from error


def parse_first_credentials(text: str, path: str) -> list[FirstCredential]:
    """Reads the lines of the file (A). Raises ConfigError (C)."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            found.append(_parsed(line.strip(), f"{SETTING}: {path}:{number}"))
    return found


def _parsed(line: str, where: str) -> FirstCredential:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ConfigError(SETTING, f"{where}: MECHANISM=[name=NAME,password=PASSWORD] is expected")
    mechanism = MECHANISMS.get(match[1])
    if mechanism is None:
        raise ConfigError(SETTING, f"{where}: the mechanism is not one of {', '.join(MECHANISMS)}")
    iterations = LEAST_ITERATIONS if match[3] is None else int(match[3])
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ConfigError(SETTING, f"{where}: iterations are not between {LEAST_ITERATIONS} and {MOST_ITERATIONS}")
    return FirstCredential(mechanism, match[2], iterations, match[4])


def _addition(credential: FirstCredential, source: random.Random) -> ConfigChange:
    mechanism, iterations = credential.mechanism, credential.iterations
    salt = new_salt(source)
    salted_password = mechanism.salted_password(credential.password, salt, iterations)
    text = mechanism.credential(salted_password, salt, iterations).text()

    def change(before: Mapping[str, str]) -> Steps[dict[str, str]]:
        yield
        return {mechanism.name: text, **before}

    return change
