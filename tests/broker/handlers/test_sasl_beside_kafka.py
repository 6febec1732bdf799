"""Every message of a login, right and wrong, gets the answer that Apache Kafka 3.9.1 gives in ZooKeeper mode.

tests/vectors/sasl.json has Kafka's answers. A test with Kafka itself checks that they are still the same; with
ODRADEK_RECORD=1 it writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.security.sasl.plain import WRONG
from odradek.testing import in_process_broker
from tests.beside_kafka.control import apache_broker
from tests.beside_kafka.recordings import VECTORS, as_json, is_still, recorded
from tests.broker.handlers.sasl_scenarios import SETTINGS, outcomes_of

LOGINS = VECTORS / "sasl.json"
REFUSED = {"error_code": 58, "error_message": WRONG, "session_lifetime_ms": 0}
HANDSHAKE = {"error_code": 0, "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]}
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
NO_DECODING = "a request that is not expected is not decoded, so it has no ILLEGAL_SASL_STATE"
OTHERWISE: dict[str, tuple[list[Any], str]] = {
    **dict.fromkeys(
        ["plain_rubbish", "plain_empty", "plain_without_user", "plain_without_password", "plain_a_fourth_part"],
        ([REFUSED, "closed"], "rubbish is refused in the words of a wrong password"),
    ),
    "scram_of_an_unknown_user": (
        [
            HANDSHAKE,
            {"error_code": 0, "error_message": "", "session_lifetime_ms": 0},
            {"error_code": 58, "error_message": GENERIC, "session_lifetime_ms": 0},
            "",
            "closed",
        ],
        "an unknown user is refused as late as a wrong password",
    ),
    "api_versions_after_the_handshake": (["closed"], NO_DECODING),
    "two_handshakes": ([HANDSHAKE, "closed"], NO_DECODING),
    "another_api_after_the_handshake": (["closed", "closed"], NO_DECODING),
    "another_api_while_a_session_is_renewed": (
        [
            HANDSHAKE,
            {"error_code": 0, "error_message": "", "session_lifetime_ms": 0},
            {"error_code": 0, "error_message": "", "session_lifetime_ms": 3600000},
            "proved",
            HANDSHAKE,
            "closed",
            "closed",
        ],
        NO_DECODING,
    ),
}
"""What Odradek answers otherwise, and why."""


async def test_every_message_gets_kafkas_answer() -> None:
    kafkas = recorded(LOGINS)
    settings = {**SETTINGS, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    async with in_process_broker(settings) as broker:
        ours = as_json(await outcomes_of(broker.endpoints[0].port))
    expected = {name: OTHERWISE[name][0] if name in OTHERWISE else notes for name, notes in kafkas.items()}
    assert {name: notes for name, notes in ours.items() if notes != expected.get(name)} == {}
    assert ours.keys() == expected.keys()
    assert all(kafkas[name] != other for name, (other, _) in OTHERWISE.items())


@pytest.mark.timeout(300)
async def test_kafka_gives_the_recorded_answers(zookeeper: str, kafka_control: list[str], tmp_path: Path) -> None:
    with apache_broker(kafka_control, zookeeper, tmp_path / "kafka", SETTINGS, protocol="SASL_PLAINTEXT") as port:
        is_still(LOGINS, await outcomes_of(port), sort_keys=True)
