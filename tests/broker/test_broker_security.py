"""What a broker imports of TLS, logins and the authorizer: nothing that its settings do not ask for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.testing.security import as_security
from tests.patience import PATIENCE_S

PROGRAM = """
import asyncio, json, sys
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig

async def main():
    broker = Broker(BrokerConfig.single_node(json.loads(sys.argv[1])))
    await broker.start()
    open(sys.argv[2], "w").write(" ".join(sys.modules))
    await broker.stop()

asyncio.run(main())
"""
OF_TLS = {"odradek.broker.network.certificates", "odradek.broker.network.tls_transport"}
OF_LOGINS = {"hmac", "odradek.broker.handlers.authenticating", "odradek.broker.sasl_mechanisms"}
OF_THE_AUTHORIZER = {
    "odradek.broker.cluster.stored_acls",
    "odradek.broker.handlers.acls",
    "odradek.broker.handlers.authorized_fetch",
    "odradek.broker.handlers.authorized_produce",
    "odradek.broker.security.authorizer.acl",
    "odradek.broker.security.authorizer.acl_authorizer",
}


def imported(security: str, directory: Path) -> set[str]:
    settings = as_security(security).settings("127.0.0.1:0", directory) | {"log.dirs": str(directory / "data")}
    found = directory / "imported"
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        json.dumps({"listeners": "PLAINTEXT://127.0.0.1:0", **settings}),
        str(found),
    ]
    subprocess.run(command, timeout=PATIENCE_S, check=True)
    return set(found.read_text().split())


@pytest.mark.parametrize(("security", "needed"), [("PLAINTEXT", set()), ("SSL", OF_TLS), ("SASL_PLAINTEXT", OF_LOGINS)])
def test_a_broker_imports_only_the_protection_that_its_settings_ask_for(
    security: str, needed: set[str], tmp_path: Path
) -> None:
    assert imported(security, tmp_path) & (OF_TLS | OF_LOGINS | OF_THE_AUTHORIZER) == needed
