"""JAAS configurations are read as Java reads them; errors name file and line, and show no secret."""

from __future__ import annotations

import pytest

from odradek.broker.security.jaas import JaasError, LoginModule, parse_jaas, parse_login_module

FILE = """
// who the broker is for ZooKeeper
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"   /* two
                              lines */ password="p{a};s=s\\"\\\\w";
};

KafkaServer {
    a.PlainLoginModule REQUIRED user_alice=secret user_bob = "b // no comment" serviceName=kafka-1;
    b.Other optional;
};
"Empty one" { };
"""


def plain(modules: list[LoginModule]) -> list[tuple[str, str, dict[str, str]]]:
    return [(module.class_name, module.flag, dict(module.options)) for module in modules]


def options_of(options: str) -> dict[str, str]:
    (module,) = parse_jaas(f"S {{ a.B required {options}; }};", "f")["S"]
    return dict(module.options)


def test_sections_modules_options_quotes_and_comments() -> None:
    found = parse_jaas(FILE, "jaas.conf")
    assert list(found) == ["Client", "KafkaServer", "Empty one"]
    digest = "org.apache.zookeeper.server.auth.DigestLoginModule"
    options = {"username": "kafka", "password": 'p{a};s=s"\\w'}
    assert plain(found["Client"]) == [(digest, "required", options)]
    assert plain(found["KafkaServer"]) == [
        (
            "a.PlainLoginModule",
            "required",
            {"user_alice": "secret", "user_bob": "b // no comment", "serviceName": "kafka-1"},
        ),
        ("b.Other", "optional", {}),
    ]
    assert found["Empty one"] == []


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r'"a\tb\nc"', "a\tb\nc"),
        (r'"\101\0\60x"', "A\0" + "0x"),
        (r'"\400"', "\x20" + "0"),
        (r'"\q\$\""', 'q$"'),
        ('"ü {} = ;"', "ü {} = ;"),
        ('""', ""),
        ("word-1_2.3$*", "word-1_2.3$*"),
    ],
)
def test_values_have_javas_escapes(quoted: str, value: str) -> None:
    assert options_of(f"x={quoted}") == {"x": value}


def test_the_last_of_two_values_counts() -> None:
    assert options_of("x=1 x=2") == {"x": "2"}


def test_an_empty_text_has_no_sections() -> None:
    assert parse_jaas(" \n// nothing\n", "f") == {}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("Client", 1, "{ is expected after the name of section Client, where the file ends"),
        ("Client {\n", 2, "the class of a login module, or the } of section Client, is expected, where the file ends"),
        ("Client { a.B required; }", 1, "; is expected after the } of section Client, where the file ends"),
        ("Client { a.B\nsometimes; };", 2, "required, requisite, sufficient, optional is expected after a.B"),
        ("Client { a.B; };", 1, "a flag after a.B is expected"),
        ("Client { a.B required\n x=my hidden; };", 2, "= is expected after the name of an option after option x"),
        ("Client { a.B required\n\n hidden; };", 3, "= is expected after the name of an option after a.B required"),
        ("Client { a.B required x=; };", 1, "the value of option x is expected"),
        ("Client { a.B required x=hidden };", 1, "an option or ; after option x is expected"),
        ('Client { a.B required x="hid\nden"; };', 1, "a text in quotes does not end on its line"),
        ("Client { a.B required\n x=/hidden; };", 2, "a character stands here that must be in double quotes"),
        ("Client { a.B required x='hidden'; };", 1, "a character stands here that must be in double quotes"),
        ("/* a\nb\n", 1, "a comment does not end"),
        ('Client { a.B required\n x="${hidden}"; };', 2, "option x contains ${, a system property of Java"),
        ("Client { };\n\nClient { };", 3, "there is another section Client"),
        ("} Client { };", 1, "the name of a section is expected"),
    ],
)
def test_an_error_names_file_and_line_and_shows_no_value(text: str, line: int, problem: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_jaas(text, "/etc/jaas.conf")
    message = str(caught.value)
    assert message.startswith(f"/etc/jaas.conf:{line}: {problem}")
    assert "hid" not in message


def outcome(text: str) -> str:
    try:
        return str(parse_jaas(text, "f"))
    except JaasError as error:
        return str(error)


def test_every_piece_of_a_file_is_read_or_refused() -> None:
    assert {outcome(FILE[:end])[0] for end in range(len(FILE))} == {"{", "f"}


def test_a_login_module_does_not_show_its_secrets() -> None:
    (module,) = parse_jaas(FILE, "f")["Client"]
    assert repr(module) == "LoginModule(org.apache.zookeeper.server.auth.DigestLoginModule required username password)"


def test_a_setting_has_one_login_module_without_a_section() -> None:
    module = parse_login_module('a.B required // why\n user_alice="a;b" user_bob=c;\n', "the.setting")
    assert plain([module]) == [("a.B", "required", {"user_alice": "a;b", "user_bob": "c"})]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the class of a login module is expected, where the file ends"),
        ("a.B required", "an option or ; after a.B required is expected, where the file ends"),
        ("a.B required x=hidden; c.D required;", "nothing may follow the ; of the login module"),
        ("a.B required x=hidden; };", "nothing may follow the ; of the login module"),
        ("S { a.B required; };", "a flag after the class is expected"),
        ("hidden", "a flag after the class is expected, where the file ends"),
        ("hidden words", "required, requisite, sufficient, optional is expected after the class"),
    ],
)
def test_another_text_is_no_login_module(text: str, problem: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_login_module(text, "the.setting")
    assert str(caught.value) == f"the.setting:1: {problem}"
