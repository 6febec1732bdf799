"""The heap of Spark's driver: the configured value, or a quarter of the available memory."""

import os
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.memory import available_memory, derived_memory, planned_memory, size_of

GIB = 1 << 30
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("gib", "heap"), [(2, "1024m"), (4, "1024m"), (16, "4096m"), (32, "8192m"), (512, "8192m")])
def test_the_default_is_a_quarter_of_the_memory_from_one_to_eight_gib(gib: int, heap: str) -> None:
    assert derived_memory(gib * GIB) == heap


@pytest.mark.parametrize(
    ("group", "directory", "file"),
    [
        ("0::/jobs/ours", "jobs", "memory.max"),
        ("0::/jobs/ours", ".", "memory.max"),
        ("4:cpu,memory:/jobs/ours", "memory/jobs/ours", "memory.limit_in_bytes"),
        ("4:memory:/not/mounted", "memory", "memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_control_group_is_used(tmp_path: Path, group: str, directory: str, file: str) -> None:
    (tmp_path / "mount" / directory).mkdir(parents=True)
    (tmp_path / "mount" / directory / file).write_text("104857600\n")
    (tmp_path / "cgroup").write_text(f"9:pids:/\n{group}\n")
    assert available_memory(tmp_path / "cgroup", tmp_path / "mount") == 104857600


def test_without_a_limit_the_machines_memory_is_used(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cgroup").write_text("0::/\n")
    assert available_memory(tmp_path / "cgroup", tmp_path) == MACHINE
    assert available_memory(tmp_path / "none", tmp_path) == MACHINE


def test_the_most_specific_setting_is_used() -> None:
    settings = Settings(driver_memory="2g", spark={"spark.driver.memory": "3g"})
    defaults, environ = {"spark.driver.memory": "4g"}, {"SPARK_DRIVER_MEMORY": "5g"}
    assert planned_memory(settings, defaults, environ) == ("3g", "[spark] spark.driver.memory")
    assert planned_memory(Settings(driver_memory="2g"), defaults, environ) == ("2g", "driver-memory")
    assert planned_memory(Settings(), defaults, environ) == ("4g", "spark-defaults.conf")
    assert planned_memory(Settings(), {}, environ) == ("5g", "SPARK_DRIVER_MEMORY")
    heap, why = planned_memory(Settings(), {}, {})
    assert GIB <= (size_of(heap) or 0) <= 8 * GIB
    assert why.startswith("a quarter of ")


@pytest.mark.parametrize("size", ["2", "2 GiB", "many", "0g"])
def test_an_invalid_memory_size_is_refused_by_name(size: str) -> None:
    with pytest.raises(PipelineError, match=f"driver-memory is '{size}', not a heap size"):
        planned_memory(Settings(driver_memory=size), {}, {})
    with pytest.raises(PipelineError, match=r"\[spark\] spark\.driver\.memory is"):
        planned_memory(Settings(spark={"spark.driver.memory": size}), {}, {})
