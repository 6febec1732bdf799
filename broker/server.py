"""The life of a broker: the order in which its parts (assembly.py) start, and the order in which they stop.

Start: lock the log directories, open the metadata store, read the settings and which topics there are, bind the
addresses, load the logs, register, and stand for election. The controller then sends the roles and the metadata. A
broker that has a metadata store of its own is the controller, so it accepts connections only after that; a broker of a
cluster accepts them as soon as it is registered, since the controller may be another one, and not before: it knows no
topics, and the end of its predecessor's session may be far. Coordinators load while clients are served. If a step
fails, `start` raises `StartError` after releasing everything acquired.

Stop: let the controller move the leaderships away, end the registration, accept no more connections, answer parked
requests as if they had timed out, end the connections, close the store, end the threads, flush and close the logs and
mark them as cleanly shut down. What waits for others has limits, of 42 seconds together (ClusterMember.leave,
STEP_PATIENCE_S); serve.py ends a process that waits longer for its disk. `kill` does none of that: it releases what the
end of the process would release.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from enum import IntEnum
from itertools import chain
from random import Random, SystemRandom
from typing import TYPE_CHECKING

import structlog

from odradek.broker.assembly import Assembly
from odradek.broker.background.background import run_all_in_threads, run_groups_in_threads
from odradek.broker.features.features import registered
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.metadata_store.factory import NewMetadataStore, metadata_store_of
from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.metadata_store.start_up import ClusterIdMismatch, next_broker_id, open_store
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.open_files import NO_LIMIT
from odradek.broker.network.rounds import Dispatch
from odradek.broker.network.socket_server import NO_SOCKETS, BindError, BoundSockets
from odradek.broker.requests.endpoint import address_text
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.start_error import StartError
from odradek.storage.directories.log_directory import DirectoryLocked
from odradek.storage.directories.meta_properties import MetaPropertiesError
from odradek.storage.files import Files, OsFiles
from odradek.timer import Clock, SystemClock

if TYPE_CHECKING:
    from odradek.broker.http.server import HttpServer
    from odradek.broker.metrics.sources import BrokerStatus
    from odradek.clients.network_client import Connect

STEP_PATIENCE_S = 5.0
"""How long a stopping broker waits for the end of one of its parts. What waits for the disk has no limit here."""
CLOSE_GRACE_MS = 3000
"""How long a stopping broker waits for clients to read their last responses."""
LOCAL_HOSTS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104 # binds nothing
REASONS_NOT_TO_START = (
    BindError,
    ClusterIdMismatch,
    ConfigError,
    DirectoryLocked,
    MetaPropertiesError,
    MetadataStoreError,
    OSError,
)

WrapDispatch = Callable[["Broker", Dispatch], Dispatch]
"""Returns what the network calls instead of a broker's dispatch."""

ERRORS_OF_DISKS = (errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EROFS)

log = structlog.get_logger("broker")


class BrokerState(IntEnum):
    """The broker's state, with the numbers of Kafka's metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class Broker(Assembly):
    """One node, from its start to its end."""

    _logs_are_loaded: bool

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        files: Files | None = None,
        new_metadata_store: NewMetadataStore = metadata_store_of,
        connect: Connect | None = None,
        open_files: int = NO_LIMIT,
        wrap_dispatch: WrapDispatch | None = None,
    ) -> None:
        """Acquires nothing yet. `random` generates ids; a seeded one makes a run reproducible. `new_metadata_store`
        makes the metadata store. `connect` connects to other nodes, by default as the inter-broker listener asks for.
        `open_files` is how many files the process may have open; connections leave some of them to the logs.
        `wrap_dispatch`: for tests, whose requests may fail (testing/faults)."""
        super().__init__(clock or SystemClock(), random or SystemRandom(), files or OsFiles(), connect, open_files)
        self._new_metadata_store = new_metadata_store
        self._wrap_dispatch = wrap_dispatch
        self._listening: BoundSockets = NO_SOCKETS
        """Sockets of an earlier start, which the next one listens on."""
        self._begin_anew(config)

    def _begin_anew(self, config: BrokerConfig) -> None:
        """Makes what belongs to one start."""
        self.begin_with(config)
        self.state = BrokerState.NOT_RUNNING
        self.metrics_server: HttpServer | None = None
        self._keeps_data = True
        self._close_grace_ms = CLOSE_GRACE_MS
        self.unclean_directories: dict[str, str] = {}
        """After a stop: log directories not marked as cleanly shut down, and why; their logs will be recovered."""
        self._undo: list[Callable[[], Awaitable[None] | None]] = []
        """For everything that has been started, the function that stops it."""

    def _wrapped(self, dispatch: Dispatch) -> Dispatch:
        return dispatch if self._wrap_dispatch is None else self._wrap_dispatch(self, dispatch)

    @property
    def is_serving(self) -> bool:
        """Whether clients are served."""
        return self.state in (BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)

    def status(self) -> BrokerStatus:
        """Returns the status for the metrics and the health check."""
        from odradek.broker.metrics.sources import BrokerStatus

        return BrokerStatus(self.state, self.broker_id, self.metric_sources() if self.is_serving else None)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the first listener for a client on this machine."""
        return _local_address(self.endpoints[0].host, self.endpoints[0].port)

    @property
    def console(self) -> str:
        """The URL of the console for a client on this machine, without a path. Raises ValueError if there is none."""
        if self.metrics_server is None or not self.config.odradek_console_enable:
            raise ValueError("the broker has no console: it needs odradek.metrics.port, and odradek.console.enable")
        return f"http://{_local_address(self.config.odradek_metrics_host, self.metrics_server.port)}"

    async def start(self) -> None:
        """Returns when clients are served. Raises StartError after releasing everything acquired."""
        self.state = BrokerState.STARTING
        try:
            self.broker_security = self.new_broker_security()
            await self._serve_metrics()
            self._take_directories()
            cluster_id = await self._open_store()
            self.assemble(cluster_id, self._wrapped)
            self._undo.append(self.links.peers.close)
            await self._load_metadata()
            await self._listen()
            await self._load_logs()
            await self._serve()
            self.state = BrokerState.RUNNING
            self.coordinators.begin_loading()
        except REASONS_NOT_TO_START as error:
            await self._undo_all()
            cause = None if self.config.provided.names else error
            raise StartError(self.config.provided.hidden(self._reason(error))) from cause
        except GeneratorExit:  # the event loop has ended: see kill
            raise
        except BaseException:
            await self._undo_all()
            raise

    def _reason(self, error: Exception) -> str:
        """Returns a message for users. Names the log directories if a disk error has no file name."""
        if not isinstance(error, OSError) or not error.strerror:
            return str(error)
        if error.filename is None and error.errno not in ERRORS_OF_DISKS:
            return error.strerror
        return f"{error.filename or ', '.join(self.config.log_dirs)}: {error.strerror}"

    async def stop(self, *, hand_over: bool = True, keeps_data: bool = True) -> None:
        """Stops as described at the head of this file, within seconds plus the flush. Further calls have no effect.
        Without `hand_over`, the broker keeps its leaderships to the end: nobody is there to take them. Without
        `keeps_data`, the log directories are left as they are, since nobody will read them.
        """
        self._keeps_data = keeps_data
        if hand_over and self.state == BrokerState.RUNNING and self.metadata_store.is_shared:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self.cluster.leave()
        self.state = BrokerState.SHUTTING_DOWN
        await self._undo_all()

    async def start_over(self, config: BrokerConfig, prepare: Callable[[], Awaitable[None]]) -> None:
        """Stops without keeping any data, calls `prepare` to put the log directories in order, and starts as a new
        broker with this config. The addresses stay bound: connects wait meanwhile; connections end. Raises StartError,
        and what `prepare` raises; the broker has stopped then, and its addresses are free.
        """
        self._listening = kept = self.socket_server.duplicated_sockets()
        self._keeps_data = False
        self._close_grace_ms = 0
        self.state = BrokerState.SHUTTING_DOWN
        try:
            await self._undo_all()
            await prepare()
            self._begin_anew(config)
            await self.start()
        finally:
            self._listening = NO_SOCKETS
            for bound in chain.from_iterable(kept.values()):
                bound.close()

    def kill(self) -> None:
        """Does what the system does for a process that has ended: closes the files of the logs as they are, and
        releases the locks. Nothing of the broker may run any more: end its event loop before.
        """
        self.state = BrokerState.NOT_RUNNING
        self.background.abandon()
        self._undo.clear()
        if hasattr(self, "socket_server"):
            self.socket_server.abandon()
        if hasattr(self, "log_manager"):
            self._abandon_logs()

    # --- starting -----------------------------------------------------------------------------------------------

    async def _serve_metrics(self) -> None:
        """Comes first, so that the status is available while logs are recovered."""
        port = self.config.odradek_metrics_port
        if port >= 0:
            from odradek.broker.metrics.routes import serve_metrics

            host = self.config.odradek_metrics_host
            self.metrics_server = await serve_metrics(self.new_metrics_routes(self.status), host, port)
            self._undo.append(self.metrics_server.stop)

    def _take_directories(self) -> None:
        self.config.warn()
        self.log_manager = self.new_log_manager()
        self._logs_are_loaded = False
        self.log_manager.open()
        self._undo.append(self._leave_directories)

    async def _open_store(self) -> str:
        """Opens the metadata store, which numbers brokers that have no id. Returns the cluster id."""
        store = self.metadata_store = self._new_metadata_store(self.config, self.files, self.background, self.random)
        self._undo.append(self.background.stop)
        self._undo.append(self._close_store)
        try:
            cluster_id = await open_store(store, self.log_manager.cluster_id, self.random)
        except ClusterIdMismatch as error:
            raise StartError(f"{', '.join(self.config.log_dirs)}: {error}") from error
        if self.broker_id < 0:
            known = self.log_manager.broker_id
            self.broker_id = await next_broker_id(store, self.config.reserved_broker_max_id) if known is None else known
        self.log_manager.claim(self.broker_id, cluster_id)
        return cluster_id

    async def _load_metadata(self) -> None:
        await self.cluster.load()
        credentials = self.config.odradek_scram_credentials_file
        if credentials:
            from odradek.broker.cluster.first_credentials import add_first_credentials

            await add_first_credentials(credentials, self.files, self.cluster.configs, self.random)
        if self.broker_security.certificates is not None:
            self.broker_security.certificates.load()
        if self.metadata_store.is_shared:
            self.broker_security.warn_of_own_rights()
        self._apply_settings()
        self.config.on_change(lambda _: self._apply_settings())

    async def _listen(self) -> None:
        """Binds the addresses without accepting connections."""
        listening, self._listening = self._listening, NO_SOCKETS
        self.endpoints = await self.socket_server.bind(self.config.listeners, listening)
        self._undo.append(self._close_connections)

    async def _load_logs(self) -> None:
        """Loads the logs in short steps, so that signals are handled during a long recovery."""
        for _ in self.log_manager.load_steps(self.cluster.settings.log_config, self.cluster.known_topics.has):
            await asyncio.sleep(0)
        await run_all_in_threads(self.log_manager.take_load_syncs())
        self._logs_are_loaded = True

    async def _close_store(self) -> None:
        await (self.metadata_store.close() if self._keeps_data else self.metadata_store.abandon())

    async def _leave_directories(self) -> None:
        """A shutdown is clean only after all logs were loaded; until then, the next start treats the directories as
        after a crash."""
        if self._logs_are_loaded and self._keeps_data:
            self.unclean_directories = await run_groups_in_threads(self.log_manager.shutdown_steps())
        else:
            self._abandon_logs()

    def _abandon_logs(self) -> None:
        for partition_log in self.log_manager.logs.values():
            partition_log.segments.close_files()
        self.log_manager.release()

    async def _serve(self) -> None:
        self.reaper.start()
        self._undo.append(self.reaper.stop)
        self._undo.append(self.cluster.stop)
        await self.cluster.register(self._registration())
        if self.metadata_store.is_shared:
            await self.socket_server.start()
        await self.cluster.stand_for_election()
        self.periodic_work.start()
        if not self.metadata_store.is_shared:
            await self.socket_server.start()
        self._start_log_cleaner()
        log.info(
            "broker started",
            broker_id=self.broker_id,
            cluster_id=self.metadata.cluster_id,
            listeners=[f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in self.endpoints],
            topics=self.metadata.topic_count,
            partitions=self.metadata.partition_count,
        )

    def _start_log_cleaner(self) -> None:
        if self.config.log_cleaner_enable:
            from odradek.broker.cleaning.log_cleaner import LogCleaner

            self.log_cleaner = LogCleaner(self.log_manager, self.config, self.background, self.clock, self.files)
            self.log_cleaner.start()

    def _registration(self) -> BrokerInfo:
        endpoints = {
            endpoint.name: BrokerEndpoint(
                endpoint.name, endpoint.advertised_host, endpoint.advertised_port, endpoint.security_protocol
            )
            for endpoint in self.endpoints
            if endpoint.advertised_host is not None
        }
        return BrokerInfo(self.broker_id, endpoints, self.config.broker_rack, features=registered())

    def _apply_settings(self) -> None:
        """Applies dynamic settings to components that keep a copy of them."""
        self.log_manager.default_config = self.config.log_config()
        self.log_manager.set_producer_id_expiration(self.config.producer_id_expiration_ms)
        self.socket_server.limits = ConnectionLimits.from_config(self.config, self.open_files)
        self.cluster.settings_changed()
        if self.broker_security.certificates is not None:
            self.broker_security.certificates.reload()
        if self.log_cleaner is not None:
            self.log_cleaner.settings_changed()

    # --- stopping -----------------------------------------------------------------------------------------------

    async def _close_connections(self) -> None:
        await self.socket_server.stop_accepting()
        self.coordinators.stop()
        self.replica_manager.shutdown()
        while not self.completions.is_empty:
            self.completions.drain()
        await self.socket_server.stop(self._close_grace_ms)

    async def _undo_all(self) -> None:
        while self._undo:
            undo = self._undo.pop()
            name = getattr(undo, "__qualname__", str(undo))
            try:
                async with asyncio.timeout(self._patience_s(undo)):
                    ending = undo()
                    if ending is not None:
                        await ending
            except TimeoutError:
                log.error("shutdown step given up", step=name, after_s=STEP_PATIENCE_S)
            except Exception:
                log.exception("shutdown step failed", step=name)

    def _patience_s(self, step: object) -> float | None:
        """Returns how long a step of the shutdown may wait for others; None if it waits for nothing but the disk."""
        waits_for_disk = step in (self.background.stop, self._leave_directories)
        is_alone = not hasattr(self, "metadata_store") or not self.metadata_store.is_shared
        return None if waits_for_disk or is_alone else STEP_PATIENCE_S


def _local_address(host: str, port: int) -> str:
    return address_text(LOCAL_HOSTS.get(host, host), port)
