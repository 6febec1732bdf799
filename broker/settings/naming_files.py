"""Names the setting and the file in errors of a file that a setting names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.broker.security.key_stores import StoreError
from odradek.broker.settings.values import ConfigError


@contextmanager
def naming_file(name: str, path: str) -> Iterator[None]:
    """Turns errors of reading a file, or of using it as a store, into ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(name, f"{name}={path}: {error.strerror}") from error
    except StoreError as error:
        raise ConfigError(name, f"{name}={path}: the file {error}") from error
