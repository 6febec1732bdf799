"""The usual examples of hierarchical timing wheels, one test each."""

from tests.timer.recording_tasks import WheelHarness


def test_a_task_of_2_ms_is_in_bucket_2(harness: WheelHarness) -> None:
    harness.add("two", 2)
    assert harness.place_of("two") == (1, 2)


def test_at_2_ms_a_task_of_8_ms_is_in_bucket_10(harness: WheelHarness) -> None:
    harness.add("two", 2)
    harness.move_to(2)
    assert harness.ran == ["two"]
    harness.add("eight", 8)
    assert harness.place_of("eight") == (1, 10)


def test_at_2_ms_a_task_of_19_ms_reuses_bucket_1(harness: WheelHarness) -> None:
    harness.add("one", 1)
    harness.add("two", 2)
    assert harness.place_of("one") == (1, 1)
    harness.move_to(2)
    harness.add("nineteen", 19)
    assert harness.place_of("nineteen") == (1, 1)
    assert harness.expiration_of((1, 1)) == 21
    harness.move_to(20)
    assert harness.ran == ["one", "two"]
    harness.move_to(21)
    assert harness.ran == ["one", "two", "nineteen"]


def test_18_ms_is_in_bucket_18_of_the_first_wheel(harness: WheelHarness) -> None:
    harness.add("task", 18)
    assert harness.place_of("task") == (1, 18)


def test_123_ms_is_in_bucket_6_of_the_second_wheel(harness: WheelHarness) -> None:
    harness.add("task", 123)
    assert harness.place_of("task") == (2, 6)
    assert harness.expiration_of((2, 6)) == 120


def test_a_clock_at_123_is_trimmed_to_120_by_ticks_of_20() -> None:
    harness = WheelHarness(tick_ms=20, start_ms=123)
    assert harness.timer.wheel.current_time_ms == 120
    harness.timer.wheel.advance_clock(159)
    assert harness.timer.wheel.current_time_ms == 140


def test_the_second_wheel_is_trimmed_to_120_when_the_first_shows_123(harness: WheelHarness) -> None:
    harness.add("far", 300)
    harness.timer.wheel.advance_clock(123)
    assert [wheel.current_time_ms for wheel in harness.levels()] == [123, 120]


def test_237_ms_is_in_a_bucket_that_expires_at_220(harness: WheelHarness) -> None:
    harness.add("task", 237)
    assert harness.expiration_of(harness.place_of("task")) == 220
    harness.move_to(220)
    assert harness.place_of("task") == (1, 17)
    assert harness.run_until(300) == [237]
    assert harness.ran_at == {"task": 237}


def test_350_ms_is_in_bucket_17_of_the_second_wheel(harness: WheelHarness) -> None:
    harness.add("task", 350)
    assert harness.place_of("task") == (2, 17)
    assert harness.expiration_of((2, 17)) == 340


def test_446_450_455_and_473_are_in_bucket_1_of_the_third_wheel(harness: WheelHarness) -> None:
    for delay_ms in (446, 450, 455, 473):
        harness.add(str(delay_ms), delay_ms)
    assert [harness.place_of(name) for name in ("446", "450", "455", "473")] == [(3, 1)] * 4
    assert harness.expiration_of((3, 1)) == 400
    assert harness.timer.queued_buckets == 1


def test_450_moves_from_the_third_wheel_through_440_to_460_to_its_millisecond(harness: WheelHarness) -> None:
    for delay_ms in (446, 450, 455, 473):
        harness.add(str(delay_ms), delay_ms)
    harness.move_to(400)
    assert harness.place_of("450") == (2, 2)
    assert harness.expiration_of((2, 2)) == 440
    assert harness.place_of("473") == (2, 3)
    harness.move_to(440)
    assert harness.place_of("450") == (1, 10)
    assert harness.expiration_of((1, 10)) == 450
    assert harness.run_until(1000) == [446, 450, 455, 460, 473]
    assert harness.ran_at == {"446": 446, "450": 450, "455": 455, "473": 473}


def test_the_example_in_the_docstring_of_the_timing_wheel_is_right(harness: WheelHarness) -> None:
    for delay_ms in (350, 446, 450, 473):
        harness.add(str(delay_ms), delay_ms)
    hands = {}
    for moment in (340, 350, 400, 440, 446, 450, 460, 473):
        assert harness.timer.next_expiration_ms == moment
        harness.move_to(moment)
        hands[moment] = [wheel.current_time_ms for wheel in harness.levels()]
    assert harness.ran_at == {"350": 350, "446": 446, "450": 450, "473": 473}
    assert (hands[340], hands[350], hands[400]) == ([340, 340, 0], [350, 340, 0], [400, 400, 400])
    assert (hands[440], hands[460]) == ([440, 440, 400], [460, 460, 400])


def test_a_timeout_of_30_s_needs_four_wheels(harness: WheelHarness) -> None:
    harness.add("request", 30_000)
    assert len(harness.levels()) == 4
    assert [wheel.tick_ms for wheel in harness.levels()] == [1, 20, 400, 8000]
    assert harness.place_of("request") == (4, 3)
    assert harness.run_until(60_000) == [24_000, 30_000]
    assert harness.ran_at == {"request": 30_000}


def test_a_task_of_13_s_overflows_twelve_buckets_of_1_s_into_a_second_wheel() -> None:
    harness = WheelHarness(tick_ms=1000, wheel_size=12)
    harness.add("eleven", 11_000)
    assert len(harness.levels()) == 1
    harness.add("thirteen", 13_000)
    assert len(harness.levels()) == 2
    assert harness.place_of("thirteen") == (2, 1)
    assert harness.expiration_of((2, 1)) == 12_000
    harness.move_to(12_000)
    assert harness.place_of("thirteen") == (1, 1)
    assert harness.run_until(20_000) == [13_000]
