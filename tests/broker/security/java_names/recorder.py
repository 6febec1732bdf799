"""Records how Java writes the names of certificates, and how Kafka's rules map them, into tests/vectors.

python -m tests.broker.security.java_names.recorder CONTROL    writes the vectors; CONTROL is the command of Kafka
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

PROGRAM = Path(__file__).parent / "JavaNames.java"
VECTORS = Path(__file__).parents[3] / "vectors" / "certificate_names.jsonl"
SMALL_JVM = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
NUMBERS = {
    "CN": "550403",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "UID": "0992268993f22c640101",
    "DC": "0992268993f22c640119",
    "emailAddress": "2a864886f70d010901",
    "serialNumber": "550405",
    "surname": "550404",
    "title": "55040c",
    "givenName": "55042a",
    "dnQualifier": "55042e",
    "unknown": "2b0601040182371501",
    "joint": "883703",
}
UTF8, PRINTABLE, T61, IA5, NUMERIC, GENERAL, UNIVERSAL, BMP = 0x0C, 0x13, 0x14, 0x16, 0x12, 0x1B, 0x1C, 0x1E
TEXTS = [
    *("kafka", "", " ", "  two  ", " leading", "trailing ", "a b", "\ttab", "line\nend\n", "\rreturn\r", "back\\slash"),
    *("a,b", "a+b", 'quo"te', "a<b>c", "a;b", "a=b", "#first", "not#first", "null\0null", "\0", "ö", "日本", "😀"),
    *(
        "*.example.com",
        "Duke's",
        "(x)",
        "a/b",
        "user@example.com",
        " , ",
        "= ",
        "%",
        "~",
        "\x7f",
        "\x1f",
        "\u00a0nb\u00a0",
    ),
]
RULES = [
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, RULE:^.*[Cc][Nn]=([a-z0-9.]*).*$/$1/U,DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
    "RULE:^CN=(.*?)(,.*)?$/$1/U",
    "RULE:CN=(.*)/$1$2/",
    "RULE:CN=(.*)/$12/",
    "RULE:(C)(N)=(.*)/$3-$1$2$10$4/",
    "RULE:.*/constant/",
    "RULE:(.*)/a\\$1b/",
    "RULE:(.*)/a\\/b$1/",
    "RULE:^CN=a\\/(.*)$/$1/",
    "RULE:(.*)/$0!/",
    "RULE:.*CN=(\\w+).*/$1/L,DEFAULT",
    "  RULE:^CN=(bob)$/$1/ ,  RULE:^CN=(alice).*$/$1/L ,DEFAULT",
    "RULE:^CN=(bob)$/$1/",
    ",,DEFAULT",
    "RULE:([^,]*),([^,]*)/$2 $1/",
    "RULE:a*/x/,DEFAULT",
    "RULE:^(.*)$/$1/X",
    "RULE:^(.*)$/$1",
    "RULE:^(.*$/$1/",
    "default",
    "RULE:([A-Z]+)=(.*)/$2/UL",
]
SUBJECTS = [
    "CN=alice",
    "CN=bob",
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "OU=ServiceUsers,CN=Duke",
    "CN=a/b",
    "CN=Ünal,O=Größe",
    "CN=a\\,b,O=c",
    "1.2.840.113549.1.9.1=#160161,CN=mail",
    "",
]


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82, size >> 8, size & 255])
    return bytes([tag]) + length + content


def attribute(name: str, tag: int, value: bytes) -> bytes:
    return element(0x30, element(6, bytes.fromhex(NUMBERS[name])) + element(tag, value))


def names() -> list[bytes]:
    """Names in DER."""
    single = [("CN", tag, value) for tag in (UTF8, PRINTABLE, IA5, T61) for value in map(str.encode, TEXTS)]
    single += [(name, UTF8, b"value, 1") for name in NUMBERS]
    single += [("CN", BMP, "bmp".encode("utf-16-be")), ("CN", UNIVERSAL, "uni".encode("utf-32-be"))]
    single += [("CN", NUMERIC, b"123"), ("CN", GENERAL, b"general"), ("emailAddress", IA5, b"a@example.com")]
    single += [("CN", UTF8, b"x" * 300), ("CN", 0x04, b"octets"), ("DC", IA5, b"example")]
    found = [element(0x30, element(0x31, attribute(*one))) for one in single]
    random = Random(1)
    for _ in range(100):
        parts = [
            element(0x31, b"".join(_random_attribute(random) for _ in range(random.choice((1, 1, 1, 2, 3)))))
            for _ in range(random.randrange(7))
        ]
        found.append(element(0x30, b"".join(parts)))
    return found


def _random_attribute(random: Random) -> bytes:
    return attribute(random.choice(list(NUMBERS)), random.choice((UTF8, PRINTABLE)), random.choice(TEXTS).encode())


def vectors(control: list[str]) -> list[dict[str, Any]]:
    """Asks Java. `control` is the command that runs a class beside Kafka's."""
    asked: list[dict[str, Any]] = [{"der": name.hex()} for name in names()]
    asked += [{"rules": rules, "subject": subject} for rules in RULES for subject in SUBJECTS]
    lines = [
        one["der"] if "der" in one else f"{one['rules'].encode().hex()} {one['subject'].encode().hex()}"
        for one in asked
    ]
    done = subprocess.run(
        [*control, "tool", str(PROGRAM)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "KOPTS": SMALL_JVM},
    )
    answers = done.stdout.splitlines()
    return [
        {**one, "name": None if answer == "-" else bytes.fromhex(answer).decode()}
        for one, answer in zip(asked, answers, strict=True)
    ]


if __name__ == "__main__":
    VECTORS.write_text("".join(json.dumps(one, ensure_ascii=True) + "\n" for one in vectors(sys.argv[1:])))
