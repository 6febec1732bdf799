"""The names that tests of other projects use: of `odradek.testing`, and of what lives in a thread."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import assert_type

import odradek.testing
from odradek.testing import BrokerThread, Cluster, ClusterThread, InProcessBroker, Request, Snapshot

NAMES = """
    AdvanceFailed BrokerStatus BrokerThread CannotAdvance Cluster ClusterThread Fault Faults InProcessBroker Journal
    NeverAwaited NoSuchRequest NotReached Record Request ResetError Security Snapshot SnapshotError UnusedFaults allow
    deny in_process_broker in_process_cluster recorded replayed
"""
OF_BOTH = """
    advance advance_until bootstrap call client_properties client_settings data_dir faults request requests snapshot
    start stop wait_for_hits
"""
OF_BROKERS = "broker console reset seed"
OF_CLUSTERS = """
    bootstrap_of close cluster controller create_topic cut cut_from_store cut_off describe freeze_replication heal ids
    isr kill leader move_coordinator move_leader open pause restart resume run running status thaw wait_for_isr
    wait_for_leader wait_until wait_until_stable
"""


def test_odradek_testing_has_its_public_names() -> None:
    found = {name: value for name, value in vars(odradek.testing).items() if not name.startswith("_")}
    assert {name for name, value in found.items() if not isinstance(value, ModuleType)} == set(NAMES.split())


def test_what_lives_in_a_thread_has_its_public_names() -> None:
    for kind, names in ((BrokerThread, OF_BROKERS), (ClusterThread, OF_CLUSTERS)):
        found = {name for name in dir(kind) if not name.startswith("_")} - {"ASYNC"}
        assert found == {*OF_BOTH.split(), *names.split()}


def test_a_method_that_blocks_has_the_arguments_and_the_text_of_the_one_inside() -> None:
    for thread, inside, name in (
        (BrokerThread, InProcessBroker, "seed"),
        (ClusterThread, Cluster, "create_topic"),
        (ClusterThread, Cluster, "kill"),
        (ClusterThread, Cluster, "status"),
        (ClusterThread, Cluster, "request"),
    ):
        made, original = getattr(thread, name), getattr(inside, name)
        assert inspect.signature(made) == inspect.signature(original)
        assert inspect.getdoc(made) == inspect.getdoc(original)


def checked_by_mypy(cluster: ClusterThread, broker: BrokerThread) -> None:
    """Never called: mypy sees the arguments and the results of methods that are made."""
    assert_type(cluster.leader("orders", 0), int | None)
    assert_type(cluster.request(api="Produce", within=1), Request)
    assert_type(broker.snapshot(), Snapshot)
    cluster.kill("1")  # type: ignore[arg-type]
    cluster.request(ap="Produce")  # type: ignore[call-arg]
    cluster.faults.add(api="Produce", eror=6)  # type: ignore[call-arg]
