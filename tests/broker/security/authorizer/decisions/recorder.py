"""Records what Kafka's StandardAuthorizer decides about the cases of `cases.py`, into tests/vectors.

python -m tests.broker.security.authorizer.decisions.recorder CONTROL    writes the vectors; CONTROL is the command of
                                                                          Kafka, which runs AclDecisions.java
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.broker.security.authorizer.decisions.cases import BLOCKS, Case, cases

PROGRAM = Path(__file__).parent / "AclDecisions.java"
VECTORS = Path(__file__).parents[4] / "vectors" / "acl_decisions.json"
SMALL_JVM = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
DIGESTED = 10
BETWEEN_ITEMS, BETWEEN_PARTS = "\x1e", "\x1f"


class Recorded(NamedTuple):
    """The decisions of one block: a digit for each request, 1 if it is allowed. `digest`: of the block's cases, which
    must be the same ones in the test.
    """

    digest: str
    decisions: str


def line_of(case: Case) -> str:
    """A case as the program reads it."""
    acls = BETWEEN_ITEMS.join(
        BETWEEN_PARTS.join(
            (str(int(kind)), str(int(pattern)), name, principal, host, str(int(operation)), str(int(permission)))
        )
        for (kind, pattern, name), (principal, host, operation, permission) in case.acls
    )
    requests = BETWEEN_ITEMS.join(
        BETWEEN_PARTS.join(
            (
                *(request.principal, request.host, str(int(request.operation)), str(int(request.resource_type))),
                *(() if request.name is None else (request.name,)),
            )
        )
        for request in case.requests
    )
    return "\t".join((case.super_users, str(case.allows_everyone).lower(), acls, requests))


def digest_of(block: Sequence[Case]) -> str:
    """One case in ten tells whether the cases are the same: all numbers before it are drawn alike."""
    return hashlib.sha256("\n".join(map(line_of, block[::-DIGESTED])).encode()).hexdigest()


def recorded() -> list[Recorded]:
    """What is recorded, by block."""
    return [
        Recorded(one["digest"], bin(int.from_bytes(base64.b64decode(one["decisions"])))[3:])
        for one in json.loads(VECTORS.read_text())
    ]


def ask(control: list[str], block: int) -> Recorded:
    """Asks Kafka. `control` is the command that runs a class beside Kafka's."""
    asked = list(cases(block))
    done = subprocess.run(
        [*control, "tool", str(PROGRAM)],
        input="".join(line_of(case) + "\n" for case in asked),
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=True,
        env={**os.environ, "KOPTS": SMALL_JVM},
    )
    return Recorded(digest_of(asked), "".join(done.stdout.split()))


def text_of(one: Recorded) -> dict[str, str]:
    """A leading 1 keeps the zeros that follow it."""
    number = int("1" + one.decisions, 2)
    data = number.to_bytes((number.bit_length() + 7) // 8)
    return {"digest": one.digest, "decisions": base64.b64encode(data).decode()}


if __name__ == "__main__":
    blocks = [text_of(ask(sys.argv[1:], block)) for block in range(BLOCKS)]
    VECTORS.write_text(json.dumps(blocks, indent=1) + "\n")
