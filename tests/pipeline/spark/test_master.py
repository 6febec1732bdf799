"""Where the driver listens: on loopback with a local master, on a reachable address with a cluster."""

from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.master import (
    address_towards,
    as_host,
    check_master,
    driver_address,
    is_local,
    named_master,
    refuse_unknown_yarn,
    says_address,
)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,512]"])
def test_a_local_driver_listens_on_loopback(master: str) -> None:
    assert driver_address(master, {}) == "127.0.0.1"


@pytest.mark.parametrize(
    "master",
    [
        "spark://127.0.0.1:7077",
        "spark://localhost:7077,localhost:7078",
        "k8s://https://127.0.0.1:6443",
        "k8s://localhost",
    ],
)
def test_a_cluster_driver_listens_on_the_address_from_which_it_reaches_the_master(master: str) -> None:
    assert driver_address(master, {}) in ("127.0.0.1", "::1")


def test_the_address_towards_a_remote_host_is_not_loopback() -> None:
    # TEST-NET-1: nothing is sent. Without a route there is no address.
    assert address_towards("192.0.2.1") != "127.0.0.1"


def test_spark_chooses_the_address_for_a_master_without_a_host() -> None:
    assert driver_address("spark://there.is.no.such.host.invalid:7077", {}) is None
    assert driver_address("yarn", {}) is None


@pytest.mark.parametrize("variable", ["SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"])
@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077"])
def test_the_users_environment_overrides_the_driver_address(master: str, variable: str) -> None:
    assert driver_address(master, {variable: "10.1.2.3"}) is None


def test_an_address_in_spark_env_sh_is_found_and_comments_are_ignored(tmp_path: Path) -> None:
    script = tmp_path / "spark-env.sh"
    assert not says_address(script)
    script.write_text("#!/bin/sh\n# - SPARK_LOCAL_IP, to set the address\n#SPARK_LOCAL_IP=10.1.2.3\n")
    assert not says_address(script)
    script.write_text("export SPARK_LOCAL_IP=10.1.2.3\n")
    assert says_address(script)


def test_an_ipv6_address_is_in_brackets() -> None:
    assert (as_host("::1"), as_host("10.1.2.3")) == ("[::1]", "10.1.2.3")


def test_only_single_process_masters_are_local() -> None:
    assert [is_local(one) for one in ("local", "local[2]", "local-cluster[2,1,512]", "yarn", "spark://a:1")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_the_master_of_pysparks_arguments_is_found() -> None:
    assert named_master("--conf a=b --master spark://a:7077 pyspark-shell") == "spark://a:7077"
    assert named_master("--master=yarn pyspark-shell") == "yarn"
    assert named_master("pyspark-shell") is None


def test_an_unknown_master_is_refused() -> None:
    with pytest.raises(PipelineError, match="master 'mesos://a:5050' is not a Spark master"):
        check_master("mesos://a:5050")


def test_yarn_needs_one_of_hadoops_variables() -> None:
    with pytest.raises(PipelineError, match=r"neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set; .*yarn-site\.xml"):
        refuse_unknown_yarn("yarn", {"HADOOP_CONF_DIR": ""})
    refuse_unknown_yarn("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})
    refuse_unknown_yarn("local[*]", {})
