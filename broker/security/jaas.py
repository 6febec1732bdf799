"""JAAS configuration, as Java's login configuration file has it: named sections of login modules with options.

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
            username="kafka"
            password="a \\"quoted\\" secret";
    };

    (A) A section is a name, login modules in braces, and a semicolon. A login module is a class, a flag, options, and a
        semicolon. An option is name=value; if one is given twice, the last counts. Flags are FLAGS in any case.
    (B) A name or a value is a word (letters, digits and _ - . $ *), or a text in double quotes, which ends on its line.
        (In Java, a word must not begin with a digit.) In quotes \\n \\t \\r \\f \\b \\a \\v and \\nnn (octal) have
        Java's meaning; before any other character the backslash is dropped.
    (C) // begins a comment up to the end of the line, /* one up to */.
    (D) A value with ${ is an error: Java would replace ${name} by a system property, and Odradek has none.
    (E) A setting has one login module alone: its class, its flag, its options, a semicolon.
    (F) An error names the source and the line, and quotes no value: it may be a piece of a password.

Source: the documentation of `javax.security.auth.login.Configuration`; Java's `StreamTokenizer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.broker.security.sasl.plain import PLAIN

FLAGS = ("required", "requisite", "sufficient", "optional")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER_OPTION = "user_"
"""Before the name of a user, in the options of PlainLoginModule."""

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\f\n]+ | //[^\n]* | /\*.*?\*/)
      | (?P<mark>[{};=])
      | (?P<word>[\w.$*-]+)
      | "(?P<quoted>(?:[^"\\\n]|\\[^\n])*)"
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


class JaasError(ValueError):
    """The text is not a JAAS configuration, or lacks something; the message names the source, and the line if one is
    at fault.
    """


class LoginModule:
    """One login module of a section."""

    __slots__ = ("class_name", "flag", "options")

    def __init__(self, class_name: str, flag: str, options: Mapping[str, str]) -> None:
        self.class_name = class_name
        self.flag = flag
        self.options = options

    def __repr__(self) -> str:
        return f"LoginModule({self.class_name} {self.flag} {' '.join(self.options)})"


def login_module_class(mechanism: str) -> str:
    """Returns the class of a mechanism's login module."""
    return PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE


def parse_jaas(text: str, source: str) -> dict[str, list[LoginModule]]:
    """Returns the login modules of each section. `source` is for messages: the file. Raises JaasError."""
    return _Parser(text, source).sections()


def parse_login_module(text: str, source: str) -> LoginModule:
    """Returns the login module that a setting has (E). `source` is for messages: the setting. Raises JaasError."""
    return _Parser(text, source).only_module()


def login_module(class_name: str, options: Mapping[str, str]) -> str:
    """Returns the text of a login module for a setting (E), which `parse_login_module` reads."""
    words = [class_name, "required", *(f"{_quoted(name)}={_quoted(value)}" for name, value in options.items())]
    return f"{' '.join(words)};"


def _quoted(text: str) -> str:
    """A text (B); words that Java takes as they are stay so."""
    if re.fullmatch(r"[A-Za-z_][\w.-]*", text, re.ASCII):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


class _Token(NamedTuple):
    """`text` is unquoted. The kind `end` comes last."""

    kind: str
    text: str
    line: int


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._tokens = self._split(text)
        self._next = next(self._tokens)

    def sections(self) -> dict[str, list[LoginModule]]:
        found: dict[str, list[LoginModule]] = {}
        while self._next.kind != "end":
            line = self._next.line
            name = self._text("the name of a section")
            if name in found:
                raise self._error(line, f"there is another section {name}")
            found[name] = self._section(name)
        return found

    def only_module(self) -> LoginModule:
        module = self._module(None)
        if self._next.kind != "end":
            raise self._error(self._next.line, "nothing may follow the ; of the login module")
        return module

    def _section(self, name: str) -> list[LoginModule]:
        self._mark("{", f"after the name of section {name}")
        modules = []
        while not self._takes("}"):
            modules.append(self._module(name))
        self._mark(";", f"after the }} of section {name}")
        return modules

    def _module(self, section: str | None) -> LoginModule:
        """`section`: None if there is none around it (E). Then a class without a flag is not shown: somebody may have
        set a password alone.
        """
        or_end = "" if section is None else f", or the }} of section {section},"
        class_name = self._text(f"the class of a login module{or_end}")
        line, before = self._next.line, "the class" if section is None else class_name
        flag = self._text(f"a flag after {before}").lower()
        if flag not in FLAGS:
            raise self._error(line, f"{', '.join(FLAGS)} is expected after {before}")
        options: dict[str, str] = {}
        where = f"after {class_name} {flag}"
        while not self._takes(";"):
            name = self._text(f"an option or ; {where}")
            self._mark("=", f"after the name of an option {where}")
            options[name] = self._value(name)
            where = f"after option {name}"
        return LoginModule(class_name, flag, options)

    def _value(self, name: str) -> str:
        line = self._next.line
        value = self._text(f"the value of option {name}")
        if "${" in value:
            raise self._error(
                line, f"option {name} contains ${{, a system property of Java, which Odradek does not have"
            )
        return value

    # Tokens

    def _text(self, what: str) -> str:
        token = self._next
        if token.kind != "text":
            raise self._error(token.line, f"{what} is expected{self._at_the_end()}")
        self._next = next(self._tokens)
        return token.text

    def _mark(self, mark: str, where: str) -> None:
        line = self._next.line
        if not self._takes(mark):
            raise self._error(line, f"{mark} is expected {where}{self._at_the_end()}")

    def _takes(self, mark: str) -> bool:
        """Whether the next token is the mark; it is taken then."""
        if self._next.kind != "mark" or self._next.text != mark:
            return False
        self._next = next(self._tokens)
        return True

    def _at_the_end(self) -> str:
        return ", where the file ends" if self._next.kind == "end" else ""

    def _split(self, text: str) -> Iterator[_Token]:
        position, line = 0, 1
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(line, _problem_of(text[position : position + 2]))
            if match["mark"] is not None:
                yield _Token("mark", match["mark"], line)
            elif match["word"] is not None:
                yield _Token("text", match["word"], line)
            elif match["quoted"] is not None:
                yield _Token("text", _ESCAPE.sub(_unescaped, match["quoted"]), line)
            line += match[0].count("\n")
            position = match.end()
        yield _Token("end", "", line)

    def _error(self, line: int, problem: str) -> JaasError:
        return JaasError(f"{self._source}:{line}: {problem}")


def _problem_of(beginning: str) -> str:
    if beginning[0] == '"':
        return "a text in quotes does not end on its line"
    if beginning == "/*":
        return "a comment does not end"
    return "a character stands here that must be in double quotes"


def _unescaped(escape: re.Match[str]) -> str:
    text = escape[1]
    if text[0] in "01234567":
        return chr(int(text, 8))
    return _ESCAPED.get(text, text)
