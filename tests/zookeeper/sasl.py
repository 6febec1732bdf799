"""The server's side of DIGEST-MD5, as ZooKeeper's servers have it: written from RFC 2831, apart from the client's."""

from __future__ import annotations

import re
from hashlib import md5

REALM, URI = "zk-sasl-md5", "zookeeper/zk-sasl-md5"


class LoginFailed(Exception):
    """The response does not prove that the client knows the password."""


class DigestMd5Server:
    """One login. `user` is set when it has succeeded."""

    def __init__(self, passwords: dict[str, str], nonce: str = 'an "odd" nonce,') -> None:
        self.user: str | None = None
        self._passwords = passwords
        self._nonce = nonce
        self._has_begun = False

    def evaluate(self, response: bytes) -> bytes:
        """Returns the challenge, then the proof. Raises LoginFailed."""
        if not self._has_begun:
            self._has_begun = True
            if response:
                raise LoginFailed
            nonce = self._nonce.replace('"', '\\"')
            return f'realm="{REALM}",nonce="{nonce}",charset=utf-8,algorithm=md5-sess'.encode()
        said = _directives(response.decode())
        user = said["username"]
        fixed = (said["realm"], said["nonce"], said["nc"], said["digest-uri"], said["qop"])
        if fixed != (REALM, self._nonce, "00000001", URI, "auth") or user not in self._passwords:
            raise LoginFailed
        if said["response"] != self._proof(said, "AUTHENTICATE"):
            raise LoginFailed
        self.user = user
        return f"rspauth={self._proof(said, '')}".encode()

    def _proof(self, said: dict[str, str], method: str) -> str:
        user, cnonce = said["username"], said["cnonce"]
        inner = md5(f"{user}:{REALM}:{self._passwords[user]}".encode("latin-1")).digest()
        ha1 = md5(inner + f":{self._nonce}:{cnonce}".encode()).hexdigest()
        ha2 = md5(f"{method}:{URI}".encode()).hexdigest()
        return md5(f"{ha1}:{self._nonce}:00000001:{cnonce}:auth:{ha2}".encode()).hexdigest()


def _directives(text: str) -> dict[str, str]:
    pairs = re.findall(r'([\w-]+)=(?:"((?:\\.|[^"\\])*)"|([^,"]*))', text)
    return {name: plain or re.sub(r"\\(.)", r"\1", quoted) for name, quoted, plain in pairs}
