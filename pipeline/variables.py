"""Variables in a settings file: `${env:NAME}` stands for a variable of the environment, in any value.

(A) A name that is not set is an error. What a variable yields is not searched for variables again.
(B) What a variable yields is secret, and so is the whole value in which it stands: logs, reports, findings and errors
    show HIDDEN in its place (`hidden`). Secrets of up to SHORT characters are hidden where they stand as a word of
    their own.
(C) In `[kafka]`, `${env:NAME}` is left to Kafka's client if config.providers has a provider of the name `env`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from odradek.pipeline.errors import PipelineError

HIDDEN = "[hidden]"
SHORT = 3
_VARIABLE = re.compile(r"\$\{env:([^}]*)\}")


class FromEnvironment(str):
    """A value with a part from the environment. `written`: the value in the file, which alone is shown by repr.
    `secrets`: the parts, and the whole value."""

    __slots__ = ("secrets", "written")
    written: str
    secrets: tuple[str, ...]

    def __new__(cls, value: str, written: str, secrets: Iterable[str]) -> FromEnvironment:
        made = super().__new__(cls, value)
        made.written, made.secrets = written, tuple(secrets)
        return made

    def __getnewargs__(self) -> tuple[str, str, tuple[str, ...]]:  # type: ignore[override]
        return str(self), self.written, self.secrets

    def __repr__(self) -> str:
        return repr(self.written)

    def with_value(self, value: str) -> FromEnvironment:
        """Returns a part of this value."""
        return FromEnvironment(value, self.written, self.secrets)


def resolved(content: Any, where: str, environ: Mapping[str, str]) -> Any:
    """Returns a value of a settings file, a list or a table, without variables. `where`: its name, for errors. Raises
    PipelineError.
    """
    if isinstance(content, dict):
        is_kafkas = where.endswith("kafka") and "env" in str(content.get("config.providers", "")).split(",")
        if is_kafkas:
            return content
        return {name: resolved(one, f"{where}.{name}", environ) for name, one in content.items()}
    if isinstance(content, list):
        return [resolved(one, where, environ) for one in content]
    if not isinstance(content, str) or not (names := _VARIABLE.findall(content)):
        return content
    for name in names:
        if name not in environ:
            raise PipelineError(f"{where}: the environment variable {name!r} is not set", "set it, or write the value")
    value = _VARIABLE.sub(lambda found: environ[found[1]], content)
    return FromEnvironment(value, content, [*(environ[name] for name in names), value])


def secrets_of(content: Any) -> frozenset[str]:
    """Returns the secrets in a value, a list or a table."""
    if isinstance(content, FromEnvironment):
        return frozenset(content.secrets)
    if isinstance(content, Mapping):
        content = list(content.values())
    return frozenset().union(*map(secrets_of, content)) if isinstance(content, list | tuple) else frozenset()


def hidden(content: Any, secrets: frozenset[str]) -> Any:
    """Returns a text, or a list or a table with texts, without the secrets. Other values stay as they are."""
    if not secrets:
        return content
    if isinstance(content, Mapping):
        return {hidden(name, secrets): hidden(one, secrets) for name, one in content.items()}
    if isinstance(content, list | tuple):
        return [hidden(one, secrets) for one in content]
    return _pattern(secrets).sub(HIDDEN, content) if isinstance(content, str) else content


@lru_cache(maxsize=8)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    parts = {part.strip() for secret in secrets for part in (secret, *re.split(r"[,\n]", secret))} - {""}
    texts = [
        rf"(?<!\w){re.escape(part)}(?!\w)" if len(part) <= SHORT else re.escape(part)
        for part in sorted(parts, key=len, reverse=True)
    ]
    return re.compile("|".join(texts) or r"(?!)", re.IGNORECASE)
