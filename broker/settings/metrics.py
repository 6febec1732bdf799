"""Broker settings of metrics."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import BOOLEAN, CLUSTER_WIDE, INT, LIST, LONG, LOW, STRING, Setting

# fmt: off
METRICS_SETTINGS = (
    Setting("auto.include.jmx.reporter", BOOLEAN, True, LOW,
            doc="Whether metrics are reported to JMX by default; Odradek serves them to Prometheus."),
    Setting("kafka.metrics.polling.interval.secs", INT, 10, LOW, valid=AtLeast(1),
            doc="How often the reporters of kafka.metrics.reporters are polled."),
    Setting("kafka.metrics.reporters", LIST, [], LOW,
            doc="The Java classes of the older kind that report metrics."),
    Setting("metric.reporters", LIST, [], LOW, update_mode=CLUSTER_WIDE,
            doc="The Java classes that report metrics."),
    Setting("metrics.num.samples", INT, 2, LOW, valid=AtLeast(1),
            doc="The number of samples from which a rate is computed."),
    Setting("metrics.recording.level", STRING, "INFO", LOW,
            doc="The most detailed level of metrics that is recorded."),
    Setting("metrics.sample.window.ms", LONG, 30000, LOW, valid=AtLeast(1),
            doc="The length of one sample of a rate."),
    Setting("telemetry.max.bytes", INT, 1048576, LOW, valid=AtLeast(1),
            doc="The maximum size of metrics that a client may push."),
)
# fmt: on
