"""A root directory of Debian sid with one version of Python, gcc and make, for a Python that this machine lacks.

It needs root, the right to mount, and debootstrap. An archive of each root is kept in ~/.cache/odradek-sid
(ODRADEK_SID_CACHE names another directory) and made anew after a week, because sid changes daily. If that fails, the
old archive serves.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PACKAGES = "python{0}.{1}-venv,python{0}.{1}-dev,ca-certificates,gcc,libc6-dev,make"
MAX_AGE_S = 7 * 24 * 3600
DEBOOTSTRAP_TIMEOUT_S = 1200
OWN_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
"""What is mounted in them, and every process, goes with them."""
PASSED_ON = re.compile(
    r"PIP_\w+|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|(https?|no|all)_proxy|LANG", re.IGNORECASE
)
OF_THE_MACHINE = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/pip.conf",
    "~/.config/pip/pip.conf",
    "~/.pip/pip.conf",
    "/etc/ssl/certs/ca-certificates.crt",
)
STRICT = {"ODRADEK_NO_SKIP": "1", "ODRADEK_EXPECT_COMPILED": "1"}
"""A root has all that `make test` can use: tests/conftest.py."""
Version = tuple[int, int]


class NoSid(Exception):
    """Why there is no such root."""


def archive(version: Version) -> Path:
    """Where a root with the version is kept; makes it if there is none, or an old one."""
    if os.geteuid() != 0 or subprocess.run([*OWN_NAMESPACES, "true"], capture_output=True, check=False).returncode != 0:
        raise NoSid("that needs root and the right to mount")
    cache = Path(os.environ.get("ODRADEK_SID_CACHE", Path.home() / ".cache" / "odradek-sid"))
    kept = cache / "python{}.{}.tar.gz".format(*version)
    made_s = kept.stat().st_mtime if kept.exists() else None
    if made_s is not None and time.time() - made_s < MAX_AGE_S:
        return kept
    try:
        _make(version, kept)
    except NoSid as why:
        if made_s is None:
            raise
        print(f"Debian sid of {time.strftime('%F', time.gmtime(made_s))} serves: {why}", flush=True)
    return kept


def _make(version: Version, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as work:
        root, part = Path(work, "root"), Path(work, "archive")
        _debootstrap(version, root)
        left_out = [f"--exclude=./{path}/*" for path in ("dev", "proc", "sys", "var/cache/apt", "var/lib/apt/lists")]
        subprocess.run(["tar", "-C", root, *left_out, "--use-compress-program=gzip -1", "-cf", part, "."], check=True)
        part.replace(kept)


def _debootstrap(version: Version, root: Path) -> None:
    if shutil.which("debootstrap") is None:
        raise NoSid("debootstrap is missing")
    packages = "--include=" + PACKAGES.format(*version)
    command = [*OWN_NAMESPACES, "debootstrap", "--variant=minbase", packages, "sid", str(root), *_mirror()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEBOOTSTRAP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoSid(f"debootstrap takes more than {DEBOOTSTRAP_TIMEOUT_S} s") from error
    if done.returncode != 0:
        errors = re.findall("^[EW]: (.*)", done.stdout + done.stderr, re.MULTILINE)
        raise NoSid(f"debootstrap fails: {'; '.join(errors[-2:]) or f'exit status {done.returncode}'}")
    python = ["chroot", str(root), "python{}.{}".format(*version), "-c", "import ensurepip, venv"]
    if (failed := subprocess.run(python, capture_output=True, text=True, check=False)).returncode != 0:
        raise NoSid(f"its Python cannot create environments: {failed.stderr.strip().rpartition(chr(10))[2]}")


def _mirror() -> list[str]:
    """Where apt has Debian's packages from; empty where it is not Debian's, which leaves debootstrap its default."""
    if shutil.which("apt-get") is None:
        return []
    asked = [
        "apt-get",
        "indextargets",
        "--format=$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        "Label: Debian",
    ]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[:1]


class Root:
    """An unpacked archive, with what this machine knows of networks, certificates and package indexes."""

    def __init__(self, kept: Path, path: Path) -> None:
        path.mkdir(parents=True)
        subprocess.run(["tar", "-C", path, "-xf", kept], check=True)
        self.path = path
        self._within(Path.home()).mkdir(parents=True, exist_ok=True)
        passed_on = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        for file in (*OF_THE_MACHINE, *passed_on.values()):
            self._copy(Path(file).expanduser())
        here = {name: value for name, value in passed_on.items() if value[:1] != "/" or self._within(value).exists()}
        self._environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home()), **here, **STRICT}

    def _within(self, path: str | Path) -> Path:
        return self.path / str(path).lstrip("/")

    def _copy(self, file: Path) -> None:
        if file.is_absolute() and file.is_file():
            self._within(file).parent.mkdir(parents=True, exist_ok=True)
            self._within(file).unlink(missing_ok=True)
            shutil.copyfile(file, self._within(file))

    def run(self, *command: str) -> int:
        """Runs the command with this root directory, and returns its exit status.

        The root is a mount too, because namespaces can only begin in one. The shell remains the first process: a
        namespace's first one does not end by signals that it does not handle.
        """
        root, dev, proc = (shlex.quote(str(path)) for path in (self.path, self._within("dev"), self._within("proc")))
        mounts = f"mount --rbind {root} {root} && mount --rbind /dev {dev} && mount -t proc proc {proc}"
        in_root = [*OWN_NAMESPACES, "sh", "-c", f'{mounts} && chroot "$0" "$@"; exit $?', str(self.path), *command]
        return subprocess.run(in_root, env=self._environment, check=False).returncode
