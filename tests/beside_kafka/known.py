"""Intended differences, each with its reason, and a comparison that explains what it finds by them.

docs/differences.md lists them for users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.clients.recording.comparison import differences


class Known(NamedTuple):
    """`about` and `where` are patterns for the whole name of a case or step, and for a place or line in its answer."""

    about: str
    where: str
    reason: str
    is_a_race: bool = False
    """It depends on Kafka's speed: it may not occur in a run."""

    def is_about(self, name: str) -> bool:
        return re.fullmatch(self.about, name) is not None

    def explains(self, name: str, where: str) -> bool:
        return self.is_about(name) and re.fullmatch(self.where, where) is not None


@dataclass(slots=True)
class Comparison:
    """`unexplained`: the differences without a known reason. `met`: the known ones that occurred. `is_a_text`: whether
    these, at a place, are messages for people, of which Odradek's may say more."""

    known: Sequence[Known]
    is_a_text: Callable[[str, Any, Any], bool] = lambda where, kafkas, ours: False
    unexplained: list[str] = field(default_factory=list)
    met: set[Known] = field(default_factory=set)

    def compare(self, name: str, where: str, kafkas: Any, ours: Any, note: str = "") -> None:
        """Notes every value that differs."""
        for path, expected, found in differences(kafkas, ours):
            if self.is_a_text(where + path, expected, found):
                continue
            self.meet(
                name, where + path, f"{note or name}: {where}{path}: Kafka {_shown(expected)}, ours {_shown(found)}"
            )

    def meet(self, name: str, where: str, text: str) -> None:
        """Notes a difference."""
        reasons = {known for known in self.known if known.explains(name, where)}
        self.met |= reasons
        if not reasons:
            self.unexplained.append(text)

    def check(self, names: Iterable[str] | None = None) -> None:
        """Fails unless all differences are explained, and all known ones occurred that are about these names."""
        assert not self.unexplained, "\n".join(self.unexplained)
        about = [known for known in self.known if not known.is_a_race]
        if names is not None:
            asked = list(names)
            about = [known for known in about if any(map(known.is_about, asked))]
        assert [known for known in about if known not in self.met] == [], "these differences are no more"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
