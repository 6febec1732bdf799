"""Settings of metrics, and of subscriptions to the metrics of clients (KIP-714)."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, Values
from odradek.broker.settings.setting import INT, LIST, LOW, MEDIUM, Setting, SettingValues


# fmt: off
class MetricsSettings(SettingValues):
    telemetry_max_bytes = Setting(INT, 1048576, LOW, valid=AtLeast(1),
        doc="The maximum size of the metrics that a client pushes, as they are sent and decompressed; larger ones are "
            "refused.")


class OwnClientMetricsSettings(SettingValues):
    interval_ms = Setting(INT, 300000, MEDIUM,
        doc="How often the clients push the metrics, at least every 300000 ms.")
    match = Setting(LIST, [], MEDIUM, valid=Values(),
        doc="The clients, as NAME=EXPRESSION for their ids, software, addresses and ports; all by default.")
    metrics = Setting(LIST, [], MEDIUM, valid=Values(),
        doc="The beginnings of the metrics' names; `*` for all.")
