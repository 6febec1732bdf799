"""Tools that show what the cluster is: its id, its brokers' APIs, its features."""

from __future__ import annotations

from tests.cluster.kafka_tools.stage import Stage


def features(stage: Stage) -> None:
    id_of = ("cluster-id", "--bootstrap-server", stage.bootstrap)
    stage.step("show the cluster's id", "org.apache.kafka.tools.ClusterTool", *id_of, at=None)
    stage.step("show the brokers' APIs", "kafka.admin.BrokerApiVersionsCommand", in_any_order=True)
