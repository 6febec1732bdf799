"""docker-compose.secure.yml: its broker reads secrets from files, and serves who logs in over TLS."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.image.composition import running
from tests.patience import block_until
from tests.secure_composition import USER_PASSWORD, composed_in
from tests.zookeeper.certificates import PASSWORD

ADDRESS = "localhost:9092"


def odradek(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli", *arguments, "--bootstrap-server", ADDRESS]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)


def test_a_client_logs_in_over_tls_and_no_secret_is_to_be_seen(tmp_path: Path) -> None:
    file = composed_in(tmp_path / "composed")
    client = ("--command-config", str(file.parent / "admin.properties"))
    with running(file, tmp_path) as services:
        broker = services["odradek"]
        block_until(lambda: odradek("topics", "list", *client).returncode == 0)
        assert broker.is_healthy()
        assert odradek("produce", "greetings", *client, text="hello\n").returncode == 0
        assert odradek("consume", "greetings", "--from-beginning", "--exit", *client).stdout == "hello\n"
        refused = odradek("topics", "list")
        assert refused.returncode == 1
        assert "closed the connection" in refused.stderr
        seen = [Path(f"/proc/{pid}/{name}").read_text() for pid in broker.pids() for name in ("cmdline", "environ")]
        seen += [broker.log(), *(each.read_text("latin-1") for each in broker.volume.rglob("*") if each.is_file())]
    assert "broker started" in broker.log()
    for secret in (USER_PASSWORD, str(PASSWORD)):
        assert not any(secret in text for text in seen)
