"""What the readings of a row come to."""

from benchmarks.measurement import LESS, MORE, Metric, Reading, Result
from benchmarks.report import as_json, table


def result(metric: Metric, ours: list[Reading], kafka: list[Reading]) -> Result:
    return Result("row", metric, {"odradek": ours, "kafka": kafka})


def values(*numbers: float) -> list[Reading]:
    return [Reading(number) for number in numbers]


def test_the_ratio_is_of_medians_and_tells_how_many_times_better_ours_is() -> None:
    speed = result(Metric("speed", "MB/s", MORE), values(10, 300, 20), values(10, 9, 500))
    assert speed.ratio == 2.0
    assert speed.verdict == "ahead"
    time = result(Metric("time", "ms", LESS), values(10, 20, 30), values(5, 10, 15))
    assert (time.ratio, time.verdict) == (0.5, "behind")


def test_the_median_is_one_rounds_reading_with_its_own_cpu_time() -> None:
    readings = [Reading(5, 1.0), Reading(7, 2.0), Reading(6, 3.0)]
    assert result(Metric("speed", "MB/s", MORE), readings, []).median("odradek") == Reading(6, 3.0)


def test_ahead_means_as_many_times_as_wanted() -> None:
    metric = Metric("speed", "MB/s", MORE, 1.5)
    assert result(metric, values(149), values(100)).verdict == "behind"
    assert result(metric, values(150), values(100)).verdict == "ahead"


def test_where_the_client_is_the_limit_the_cpu_time_per_operation_decides() -> None:
    metric = Metric("speed", "MB/s", MORE, 1.5)
    kafka = [Reading(100, cpu_seconds=4, seconds=10, operations=1000)]
    idle = [Reading(100, cpu_seconds=2, seconds=10, operations=1000)]
    busy = [Reading(100, cpu_seconds=2, seconds=3, operations=1000)]
    hungry = [Reading(100, cpu_seconds=4, seconds=10, operations=1000)]
    assert result(metric, idle, kafka).verdict == "ahead by CPU"
    assert result(metric, busy, kafka).verdict == "behind"
    assert result(metric, hungry, kafka).verdict == "behind"


def test_nothing_at_all_is_less_than_something() -> None:
    nothing = result(Metric("CPU", "ms/s", LESS), values(0), values(17))
    assert (nothing.ratio, nothing.verdict) == (None, "ahead")


def test_without_kafka_there_is_a_table_and_no_verdict() -> None:
    alone = Result("row", Metric("speed", "MB/s", MORE), {"odradek": values(12.5)})
    assert (alone.ratio, alone.verdict) == (None, "")
    assert "12.5" in table([alone])
    assert as_json([alone], ["a note"], 1)["rows"][0]["medians"]["odradek"]["value"] == 12.5


def test_a_metric_that_is_only_told_has_no_verdict() -> None:
    assert result(Metric("late", "ms", LESS, None), values(5), values(1)).verdict == ""
