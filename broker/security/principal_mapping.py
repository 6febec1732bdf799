"""From the distinguished name of a client's certificate to the name of its user: `ssl.principal.mapping.rules`.

    RULE:^CN=(.*?),OU=Sales.*$/$1/L, RULE:^.*UID=(.*?),.*$/$1@$2/, DEFAULT

    (A) Rules are separated by commas. RULE:pattern/replacement/, then L for lower or U for upper case; DEFAULT is the
        name as it is. A slash in a pattern or a replacement is written \\/. Empty rules are skipped.
    (B) The first rule whose pattern fits the whole name decides. No rule fits: the client has no name.
    (C) In a replacement $1 is a group of the pattern, as many digits as name one that exists. If even one digit names
        none, the text stays as it is. \\x is the character x.
    (D) Patterns are regular expressions as Python reads them, which is how Java reads most of them. Classes such as \\w
        are ASCII.

Source: Kafka's `SslPrincipalMapper`, KIP-371; Java's `Matcher.replaceAll`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:,|$)")

_PIECE = re.compile(r"\\(?P<literal>.)|\$(?P<digits>[0-9]+)", re.DOTALL)


class _Rule(NamedTuple):
    """`pattern` None: DEFAULT. `case`: L, U or nothing."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str


class PrincipalMapping:
    def __init__(self, rules: str) -> None:
        """Raises ValueError, whose text says what is wrong."""
        self._rules = _parsed(rules)

    def name_of(self, distinguished_name: str) -> str | None:
        """Returns the user's name, or None if no rule fits (B)."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished_name
            if rule.pattern.fullmatch(distinguished_name):
                return _in_case(rule.pattern.sub(partial(_filled, rule), distinguished_name), rule)
        return None


def _parsed(text: str) -> list[_Rule]:
    found: list[_Rule] = []
    text = text.strip()
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"this is not DEFAULT or RULE:pattern/replacement/[LU]: {text[position:].strip()}")
        position = match.end()
        if match[1] is not None:
            found.append(_Rule(None, "", ""))
        elif match[2] is not None:
            found.append(_Rule(_compiled(match[2]), match[3], match[4]))
    return found


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern {pattern} is not a regular expression: {error}") from error


def _in_case(name: str, rule: _Rule) -> str:
    if rule.case == "L":
        return name.lower()
    return name.upper() if rule.case == "U" else name


def _filled(rule: _Rule, match: re.Match[str]) -> str:
    """The replacement for one match (C)."""
    groups = match.re.groups

    def piece(of: re.Match[str]) -> str:
        if of["literal"] is not None:
            return of["literal"]
        digits = of["digits"]
        kept = next((count for count in range(len(digits), 0, -1) if int(digits[:count]) <= groups), 0)
        if not kept:
            return of[0]
        return (match[int(digits[:kept])] or "") + digits[kept:]

    return _PIECE.sub(piece, rule.replacement)
