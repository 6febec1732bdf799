"""Secrets that a search finds, in every form in which bytes may stand in a file or a log."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Iterable
from pathlib import Path


class Markers:
    """One marker for each name, so that a failure says which secret was seen."""

    def __init__(self, *names: str) -> None:
        self._by_name = {name: f"Marker-{name}-7f3a9" for name in names}

    def __getitem__(self, name: str) -> str:
        return self._by_name[name]

    def within(self, text: str | bytes) -> list[str]:
        """The names of the secrets that the text shows."""
        data = text.encode() if isinstance(text, str) else text
        return [name for name, secret in self._by_name.items() if any(form in data for form in _forms(secret))]

    def within_files(self, directory: Path) -> list[str]:
        """The same for all files below a directory, which must be some."""
        files = [path for path in directory.rglob("*") if path.is_file()]
        assert files
        return [f"{name} in {path.name}" for path in files for name in self.within(path.read_bytes())]


def _forms(secret: str) -> Iterable[bytes]:
    """As it is, as hexadecimal digits, escaped, in UTF-16, and in base64 wherever it begins."""
    data = secret.encode()
    yield from (data, data.hex().encode(), data.hex().upper().encode(), urllib.parse.quote(secret).encode())
    yield secret.encode("utf-16-le")
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data)
        yield encoded[4 if before else 0 : -4]
