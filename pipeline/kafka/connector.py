"""The options of Spark's Kafka connector."""

from __future__ import annotations

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings

TUNED = {
    "max.poll.records": "50000",
    "max.partition.fetch.bytes": "16777216",
    "fetch.max.bytes": "67108864",
    "receive.buffer.bytes": "1048576",
}
"""Consumer settings that differ from Kafka's defaults. The connector requests two offsets after each poll, so few large
polls save a sixth of the time, and most of the broker's. `[kafka]` overrides them."""

RESERVED = {"bootstrap.servers": "bootstrap-server", "isolation.level": "isolation-level"}
"""Consumer settings that have a pipeline setting of their own."""


def connector_options(settings: Settings) -> dict[str, str]:
    """Returns the connector's options, except topics and offsets. Raises PipelineError."""
    options = {
        "kafka.bootstrap.servers": settings.bootstrap_server,
        "kafka.isolation.level": settings.isolation_level,
        "failOnDataLoss": str(settings.on_data_loss == "fail").lower(),
        "includeHeaders": "true",
    }
    for name, value in {**TUNED, **settings.kafka}.items():
        if name in RESERVED:
            raise PipelineError(f"[kafka] {name} has a setting of its own", f"set {RESERVED[name]}")
        options[f"kafka.{name}"] = value
    return options
