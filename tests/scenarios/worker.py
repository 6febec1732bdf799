"""Worker: a client of a broker or a cluster in a thread of its own."""

from __future__ import annotations

import threading
from abc import abstractmethod

from tests.wire.roaming_client import RoamingClient

END_S = 120


class Worker(threading.Thread):
    """Works from `start` to `end`. `failure`: what must not have happened. It ends the work."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self._client = RoamingClient(bootstrap)
        self._is_over = threading.Event()

    def end(self) -> None:
        self._is_over.set()
        self.join(END_S)
        assert not self.is_alive()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self.failure = failure
        finally:
            self._client.close()

    @abstractmethod
    def _work(self) -> None:
        """Returns soon after `_is_over` was set."""
