"""Root directories of Debian sid: when one is made, what is said where none can be, and what a command in it sees."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests import sid

VERSION = (3, 14)
BROKEN = "echo 'E: Couldn'\\''t find these debs: python3.14-venv' >&2; exit 1"
WITHOUT_PYTHON = 'for word; do case $word in */root) mkdir "$word";; esac; done'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if os.geteuid() != 0 or subprocess.run([*sid.OWN_NAMESPACES, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this needs root and the right to mount")
    monkeypatch.setenv("ODRADEK_SID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def debootstrap(monkeypatch: pytest.MonkeyPatch, directory: Path, script: str) -> None:
    program = directory / "bin" / "debootstrap"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def keep(cache: Path, age_s: float) -> Path:
    kept = cache / "python3.14.tar.gz"
    cache.mkdir()
    kept.touch()
    os.utime(kept, (time.time() - age_s,) * 2)
    return kept


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (BROKEN, "debootstrap fails: Couldn't find these debs: python3.14-venv"),
        (WITHOUT_PYTHON, "its Python cannot create environments: .*python3.14"),
    ],
    ids=["debootstrap fails", "no Python"],
)
def test_a_broken_sid_is_named_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    debootstrap(monkeypatch, tmp_path, script)
    with pytest.raises(sid.NoSid, match=why):
        sid.archive(VERSION)
    assert list(cache.iterdir()) == []


def test_a_missing_debootstrap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(sid.NoSid, match="debootstrap is missing"):
        sid.archive(VERSION)


def test_a_recent_archive_serves_as_it_is(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    debootstrap(monkeypatch, tmp_path, BROKEN)
    kept = keep(cache, age_s=sid.MAX_AGE_S - 60)
    assert sid.archive(VERSION) == kept
    assert capsys.readouterr().out == ""


def test_an_old_archive_serves_where_there_is_no_new_one(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    debootstrap(monkeypatch, tmp_path, BROKEN)
    kept = keep(cache, age_s=sid.MAX_AGE_S + 60)
    assert sid.archive(VERSION) == kept
    assert list(cache.iterdir()) == [kept]
    said = r"Debian sid of \d{4}-\d\d-\d\d serves: debootstrap fails: Couldn't find .*\n"
    assert re.fullmatch(said, capsys.readouterr().out)


def shell_archive(directory: Path) -> Path:
    """An archive of a root directory that has no more than a shell."""
    libraries = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    for file in ("/bin/sh", *re.findall(r"(/\S+)", libraries)):
        inside = directory / file[1:]
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, inside)
    for folder in ("dev", "proc"):
        (directory / folder).mkdir()
    subprocess.run(["tar", "-C", directory, "--gzip", "-cf", f"{directory}.tar.gz", "."], check=True)
    return Path(f"{directory}.tar.gz")


def test_a_command_sees_devices_and_settings_and_leaves_no_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pip.conf").write_text("index")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    monkeypatch.setenv("KAFKA_CONTROL", "control")
    root = sid.Root(shell_archive(tmp_path / "shell"), tmp_path / "root")
    see = 'read -r index < "$PIP_CONFIG_FILE"; echo "$index$PIP_FIND_LINKS$KAFKA_CONTROL" $ODRADEK_NO_SKIP'
    assert root.run("sh", "-c", f"{see}; : > /dev/null && test -e /proc/self/stat; exit 7") == 7
    assert capfd.readouterr() == ("index 1\n", "")
    assert root.run("sh", "-c", "test -c /dev/null && test -e /proc/self/stat") == 0
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert list((root.path / "dev").iterdir()) == list((root.path / "proc").iterdir()) == []
