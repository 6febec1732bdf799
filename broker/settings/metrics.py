"""Broker settings of metrics."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import BOOLEAN, CLUSTER_WIDE, INT, LIST, LONG, LOW, STRING, Setting

# fmt: off
METRICS_SETTINGS = (
    Setting("auto.include.jmx.reporter", BOOLEAN, True, LOW,
            doc="Whether metrics go to JMX unasked; Odradek serves them to Prometheus."),
    Setting("kafka.metrics.polling.interval.secs", INT, 10, LOW, valid=AtLeast(1),
            doc="How often the older reporters are polled."),
    Setting("kafka.metrics.reporters", LIST, [], LOW,
            doc="Java classes of the older kind that metrics are reported to."),
    Setting("metric.reporters", LIST, [], LOW, update_mode=CLUSTER_WIDE,
            doc="Java classes that metrics are reported to."),
    Setting("metrics.num.samples", INT, 2, LOW, valid=AtLeast(1),
            doc="Samples that a rate is computed from."),
    Setting("metrics.recording.level", STRING, "INFO", LOW,
            doc="The finest level of metrics that is recorded."),
    Setting("metrics.sample.window.ms", LONG, 30000, LOW, valid=AtLeast(1),
            doc="Length of one sample of a rate."),
    Setting("telemetry.max.bytes", INT, 1048576, LOW, valid=AtLeast(1),
            doc="The largest batch of metrics that a client may push."),
)
# fmt: on
