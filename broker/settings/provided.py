"""What config providers yielded: it is treated as secret, wherever it stands.

(A) A description of settings shows numbers, booleans and choices, as they cannot be passwords. Any other text that
    has a part from a provider is hidden, whatever the setting's type.
(B) Messages show nothing that came from a provider, not even a number: what does not fit its setting may be a
    password in the wrong place. Values of up to three characters are hidden where they stand as a word of their
    own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from odradek.broker.settings.rules import OneOf
from odradek.broker.settings.setting import CLASS, LIST, PASSWORD, STRING, Setting, Value
from odradek.broker.settings.values import ConfigError

HIDDEN = "[hidden]"
SHORT = 3
TEXTS = (CLASS, LIST, PASSWORD, STRING)


class Provided:
    """`names`: the settings whose values have a part from a provider. `unresolved`: those that still have a variable.
    `values`: the secrets.
    """

    def __init__(self, names: frozenset[str], unresolved: Sequence[str], values: Iterable[str]) -> None:
        self.names = names
        self.unresolved = unresolved
        parts = {part.strip() for value in values for part in (value, *re.split(r"[,\n]", value))} - {""}
        patterns = [_pattern(part) for part in sorted(parts, key=len, reverse=True)]
        self._secrets = re.compile("|".join(patterns), re.IGNORECASE) if patterns else None

    def hides(self, name: str, setting: Setting[Value]) -> bool:
        """Whether a description hides the value that was given at the start (A)."""
        return name in self.names and setting.type in TEXTS and not isinstance(setting.valid, OneOf)

    def hidden(self, message: str) -> str:
        """Returns the message without secrets (B)."""
        return message if self._secrets is None else self._secrets.sub(HIDDEN, message)

    @contextmanager
    def hiding(self) -> Iterator[None]:
        """Hides secrets in a ConfigError."""
        try:
            yield
        except ConfigError as error:
            if self._secrets is None:
                raise
            raise ConfigError(error.name, self.hidden(str(error))) from None


def _pattern(part: str) -> str:
    text = re.escape(part)
    return rf"(?<!\w){text}(?!\w)" if len(part) <= SHORT else text


NOTHING = Provided(frozenset(), (), ())
