"""`odradek certificates`: what it writes, and that a broker and its clients can use it as it is."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from odradek.broker.settings.properties import parse_properties
from tests.cli.conftest import Odradek
from tests.patience import PATIENCE_S
from tests.spawned_broker import spawned_broker


def made(run_odradek: Odradek, directory: Path, *options: str) -> str:
    status, out, err = run_odradek("certificates", "--to", str(directory), *options)
    assert (status, err) == (0, "")
    return out


def settings(file: Path) -> dict[str, str]:
    return parse_properties(file.read_bytes())


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_a_broker_and_its_clients_use_the_files_as_they_are(run_odradek: Odradek, tmp_path: Path) -> None:
    directory = tmp_path / "made"
    out = made(run_odradek, directory, "--clients", "alice,bob")
    listener = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
    }
    with spawned_broker(tmp_path / "data", listener | settings(directory / "broker.properties")) as broker:

        def topics(client: str) -> tuple[int, str, str]:
            file = str(directory / f"{client}.properties")
            return run_odradek("topics", "list", "--bootstrap-server", broker.bootstrap, "--command-config", file)

        assert topics("alice")[0] == 0
        assert "certificate required" in topics("client")[2]
        made(run_odradek, directory, "--reuse-authority", "--force", "--clients", "bob")
        assert topics("bob")[0] == 0
    for name in ("broker", "client", "alice", "bob"):
        text = (directory / f"{name}.properties").read_text()
        assert text in out


def test_files_with_keys_are_private(run_odradek: Odradek, tmp_path: Path) -> None:
    directory = tmp_path / "made"
    made(run_odradek, directory, "--clients", "alice", "--pkcs12")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes.pop("ca.pem") == 0o644
    assert set(modes.values()) == {0o600}
    expected = {"ca.key", "ca.p12", "password"}
    expected |= {f"{name}.{kind}" for name in ("broker", "alice") for kind in ("pem", "p12", "properties")}
    assert set(modes) == expected | {"client.properties"}
    assert all(b"PRIVATE KEY" not in (directory / name).read_bytes() for name in ("ca.pem", "client.properties"))


def test_nothing_is_overwritten_unless_it_is_asked_for(run_odradek: Odradek, tmp_path: Path) -> None:
    made(run_odradek, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    status, out, err = run_odradek("certificates", "--to", str(tmp_path), "--clients", "alice")
    assert (status, out) == (1, "")
    assert "has ca.key, ca.pem, broker.pem" in err
    assert "--force" in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    made(run_odradek, tmp_path, "--force")
    assert all(path.read_bytes() != before[path] for path in before if path.suffix in (".pem", ".key"))


def test_the_authority_can_sign_again(run_odradek: Odradek, tmp_path: Path) -> None:
    made(run_odradek, tmp_path)
    authority, broker = (tmp_path / "ca.pem").read_bytes(), certificate(tmp_path / "broker.pem")
    made(run_odradek, tmp_path, "--reuse-authority", "--clients", "carol")
    assert certificate(tmp_path / "broker.pem") == broker, "one more client changes nothing else"
    assert certificate(tmp_path / "carol.pem").issuer == broker.issuer
    status, _, err = run_odradek("certificates", "--to", str(tmp_path), "--reuse-authority", "--clients", "carol")
    assert status == 1
    assert "has carol.pem already" in err
    made(run_odradek, tmp_path, "--reuse-authority", "--force", "--days", "7", "--hosts", "a.example.com,::1")
    assert (tmp_path / "ca.pem").read_bytes() == authority
    again = certificate(tmp_path / "broker.pem")
    assert again.serial_number != broker.serial_number
    assert (again.not_valid_after_utc - again.not_valid_before_utc).days == 7
    names = again.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example.com"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["::1"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--hosts", "a,,b"), "--hosts: '' is neither a host name nor an IP address"),
        (("--hosts", "a b"), "--hosts: 'a b' is neither"),
        (("--clients", "../alice"), "--clients: '../alice' cannot be the name of a client"),
        (("--clients", "broker"), "--clients: 'broker' cannot be the name of a client"),
        (("--days", "0"), "--days must be at least 1"),
        (("--reuse-authority",), "--reuse-authority: there is no file"),
    ],
)
def test_bad_options_are_one_line(run_odradek: Odradek, tmp_path: Path, options: tuple[str, ...], problem: str) -> None:
    status, out, err = run_odradek("certificates", "--to", str(tmp_path), *options)
    assert (status, out) == (1, "")
    assert err.startswith("odradek: ")
    assert problem in err
    assert list(tmp_path.iterdir()) == []


def test_without_cryptography_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['cryptography'] = None; from odradek.cli.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "certificates", "--to", str(tmp_path / "made")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr == "odradek: cryptography: not installed; run: pip install 'odradek[security]'\n"
    assert not (tmp_path / "made").exists()
