"""The clients that push metrics, by the ids that they have from a broker.

(A) An instance comes with the first request that names its id, to whichever broker. It is evaluated again when a
    subscription has changed: what it is to push, and when it may, begin anew.
(B) It goes when the connection closes that it was evaluated on, or when it is silent for three intervals, at least for
    LEAST_SILENCE_MS. If there are too many, the one that has been silent for longest goes.
(C) One request for the subscription per interval, and one push: the first push after a request for the subscription may
    come at any time, since clients vary the first interval.

Source: Kafka's `ClientMetricsManager`, `ClientMetricsInstance`. Kafka forgets only the last instance of a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from uuid import UUID

from odradek.broker.background.stepwise import Steps
from odradek.broker.metadata.kafka_uuid import parse_uuid, random_uuid, uuid_text
from odradek.broker.requests.request_context import ConnectionInfo, RequestContext
from odradek.broker.telemetry.otlp import Labels
from odradek.broker.telemetry.subscriptions import DEFAULT_INTERVAL_MS, Subscriptions, Wanted
from odradek.protocol.errors import ErrorCode
from odradek.timer import SystemTimer, TimerTask

MOST_INSTANCES = 16384
LEAST_SILENCE_MS = 60_000
SILENT_INTERVALS = 3
LONGEST_VALUE = 256
"""Clients choose their ids and software's names: of a longer one, only the beginning is kept, and matched."""
UNKNOWN_SOFTWARE = ("unknown", "unknown")
NEVER_MS = -(1 << 62)
ASKS_AGAIN_AFTER = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""The errors after which a client may ask for its subscription at once."""


class ClientInstance:
    """One client, its subscription, and when it has last asked and pushed."""

    __slots__ = (
        "_last_get_ms",
        "_last_push_ms",
        "attributes",
        "connection",
        "expiration",
        "is_terminating",
        "last_error",
        "pushed_ms",
        "subscription_id",
        "subscription_version",
        "uuid",
        "values",
        "wanted",
    )

    def __init__(self, client_instance_id: UUID, context: RequestContext) -> None:
        connection = context.connection
        software = connection.client_software or UNKNOWN_SOFTWARE
        client_id = context.client_id
        self.uuid = client_instance_id
        self.values: dict[str, str | None] = {
            "client_instance_id": uuid_text(client_instance_id),
            "client_id": None if client_id is None else client_id[:LONGEST_VALUE],
            "client_software_name": software[0][:LONGEST_VALUE],
            "client_software_version": software[1][:LONGEST_VALUE],
            "client_source_address": connection.java_host,
            "client_source_port": str(connection.client_port),
        }
        """What patterns match."""
        self.expiration: TimerTask | None = None
        self.pushed_ms: int | None = None
        """When the last push was taken over; None before the first."""
        self.attributes: Labels = ()
        """What that push said of the client."""
        self.subscribe(Wanted((), DEFAULT_INTERVAL_MS), -1, connection.number)

    def subscribe(self, wanted: Wanted, version: int, connection: int) -> None:
        """Begins anew with what the client is to push (A). `connection`: the number of its connection."""
        self.wanted = wanted
        self.subscription_id = wanted.id_for(self.uuid)
        self.subscription_version = version
        self.connection = connection
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self._last_get_ms = NEVER_MS
        self._last_push_ms = NEVER_MS

    def may_get(self, now_ms: int) -> bool:
        """Whether the client may ask for its subscription now (C)."""
        if now_ms - max(self._last_get_ms, self._last_push_ms) < self.wanted.interval_ms:
            return self.last_error in ASKS_AGAIN_AFTER
        self._last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether the client may push now (C)."""
        has_asked = self._last_get_ms > self._last_push_ms
        if not has_asked and now_ms - self._last_push_ms < self.wanted.interval_ms:
            return False
        self._last_push_ms = now_ms
        return True


class ClientInstances:
    """All of one broker. `forgotten` is called with each one that goes."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        timer: SystemTimer,
        random: Random,
        forgotten: Callable[[ClientInstance], object],
    ) -> None:
        self._subscriptions = subscriptions
        self._timer = timer
        self._random = random
        self._forgotten = forgotten
        self._by_id: dict[UUID, ClientInstance] = {}
        """The one that has been silent for longest comes first."""
        self._by_connection: dict[int, dict[UUID, None]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(list(self._by_id.values()))

    def get(self, client_instance_id: UUID) -> ClientInstance | None:
        return self._by_id.get(client_instance_id)

    def named(self, text: str) -> ClientInstance | None:
        """Returns the instance whose id has this text of 22 characters."""
        try:
            return self._by_id.get(parse_uuid(text))
        except ValueError:
            return None

    def new_id(self) -> UUID:
        """Returns an id that no instance has."""
        while True:
            client_instance_id = random_uuid(self._random)
            if client_instance_id not in self._by_id:
                return client_instance_id

    def heard(self, client_instance_id: UUID, context: RequestContext) -> Steps[ClientInstance]:
        """Returns the instance of a request, which may be new (A), and puts off its end (B)."""
        yield from self._subscriptions.refresh()
        instance = self._by_id.get(client_instance_id) or ClientInstance(client_instance_id, context)
        version = self._subscriptions.version
        if instance.subscription_version < version:
            wanted = yield from self._subscriptions.wanted(instance.values)
            instance = self._by_id.get(client_instance_id, instance)
            if instance.subscription_version < version:
                self._let_go_of_connection(instance)
                instance.subscribe(wanted, version, context.connection.number)
                self._by_connection.setdefault(instance.connection, {})[instance.uuid] = None
        self._by_id.pop(instance.uuid, None)
        self._by_id[instance.uuid] = instance
        self._put_off(instance)
        if len(self._by_id) > MOST_INSTANCES:
            self._forget(next(iter(self._by_id.values())))
        return instance

    def disconnected(self, connection: ConnectionInfo) -> None:
        """Forgets the instances of a connection that has ended (B)."""
        for client_instance_id in list(self._by_connection.get(connection.number, ())):
            self._forget(self._by_id[client_instance_id])

    def _put_off(self, instance: ClientInstance) -> None:
        if instance.expiration is not None:
            instance.expiration.cancel()
        silence_ms = max(LEAST_SILENCE_MS, SILENT_INTERVALS * instance.wanted.interval_ms)
        instance.expiration = self._timer.call_later(silence_ms, lambda: self._forget(instance))

    def _forget(self, instance: ClientInstance) -> None:
        if instance.expiration is not None:
            instance.expiration.cancel()
            instance.expiration = None
        del self._by_id[instance.uuid]
        self._let_go_of_connection(instance)
        self._forgotten(instance)

    def _let_go_of_connection(self, instance: ClientInstance) -> None:
        of_connection = self._by_connection.get(instance.connection)
        if of_connection is not None:
            of_connection.pop(instance.uuid, None)
            if not of_connection:
                del self._by_connection[instance.connection]
