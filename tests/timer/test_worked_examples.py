"""The examples by which people learn hierarchical timing wheels, each under its own name."""

import asyncio

from tests.timer.recording_tasks import WheelRoom


def test_a_task_of_2_ms_is_in_bucket_2(room: WheelRoom) -> None:
    room.add("two", 2)
    assert room.place_of("two") == (1, 2)


def test_at_2_ms_a_task_of_8_ms_is_in_bucket_10(room: WheelRoom) -> None:
    room.add("two", 2)
    room.move_to(2)
    assert room.ran == ["two"]
    room.add("eight", 8)
    assert room.place_of("eight") == (1, 10)


def test_at_2_ms_a_task_of_19_ms_reuses_bucket_1(room: WheelRoom) -> None:
    room.add("one", 1)
    room.add("two", 2)
    assert room.place_of("one") == (1, 1)
    room.move_to(2)
    room.add("nineteen", 19)
    assert room.place_of("nineteen") == (1, 1)
    assert room.expiration_of((1, 1)) == 21
    room.move_to(20)
    assert room.ran == ["one", "two"]
    room.move_to(21)
    assert room.ran == ["one", "two", "nineteen"]


def test_18_ms_is_in_bucket_18_of_the_first_wheel(room: WheelRoom) -> None:
    room.add("task", 18)
    assert room.place_of("task") == (1, 18)


def test_123_ms_is_in_bucket_6_of_the_second_wheel(room: WheelRoom) -> None:
    room.add("task", 123)
    assert room.place_of("task") == (2, 6)
    assert room.expiration_of((2, 6)) == 120


def test_a_clock_at_123_is_trimmed_to_120_by_ticks_of_20() -> None:
    room = WheelRoom(tick_ms=20, start_ms=123)
    assert room.timer.wheel.current_time_ms == 120
    room.timer.wheel.advance_clock(159)
    assert room.timer.wheel.current_time_ms == 140


def test_the_second_wheel_is_trimmed_to_120_when_the_first_shows_123(room: WheelRoom) -> None:
    room.add("far", 300)
    room.timer.wheel.advance_clock(123)
    assert [wheel.current_time_ms for wheel in room.levels()] == [123, 120]


def test_237_ms_is_in_a_bucket_that_expires_at_220(room: WheelRoom) -> None:
    room.add("task", 237)
    assert room.expiration_of(room.place_of("task")) == 220
    room.move_to(220)
    assert room.place_of("task") == (1, 17)
    assert room.run_until(300) == [237]
    assert room.ran_at == {"task": 237}


def test_350_ms_is_in_bucket_17_of_the_second_wheel(room: WheelRoom) -> None:
    room.add("task", 350)
    assert room.place_of("task") == (2, 17)
    assert room.expiration_of((2, 17)) == 340


def test_446_450_455_and_473_are_in_bucket_1_of_the_third_wheel(room: WheelRoom) -> None:
    for delay_ms in (446, 450, 455, 473):
        room.add(str(delay_ms), delay_ms)
    assert [room.place_of(name) for name in ("446", "450", "455", "473")] == [(3, 1)] * 4
    assert room.expiration_of((3, 1)) == 400
    assert room.timer.queued_buckets == 1


def test_450_moves_from_the_third_wheel_through_440_to_460_to_its_millisecond(room: WheelRoom) -> None:
    for delay_ms in (446, 450, 455, 473):
        room.add(str(delay_ms), delay_ms)
    room.move_to(400)
    assert room.place_of("450") == (2, 2)
    assert room.expiration_of((2, 2)) == 440
    assert room.place_of("473") == (2, 3)
    room.move_to(440)
    assert room.place_of("450") == (1, 10)
    assert room.expiration_of((1, 10)) == 450
    assert room.run_until(1000) == [446, 450, 455, 460, 473]
    assert room.ran_at == {"446": 446, "450": 450, "455": 455, "473": 473}


def test_the_example_in_the_docstring_of_the_timing_wheel_is_right(room: WheelRoom) -> None:
    for delay_ms in (350, 446, 450, 473):
        room.add(str(delay_ms), delay_ms)
    hands = {}
    for moment in (340, 350, 400, 440, 446, 450, 460, 473):
        assert room.timer.next_expiration_ms == moment
        room.move_to(moment)
        hands[moment] = [wheel.current_time_ms for wheel in room.levels()]
    assert room.ran_at == {"350": 350, "446": 446, "450": 450, "473": 473}
    assert (hands[340], hands[350], hands[400]) == ([340, 340, 0], [350, 340, 0], [400, 400, 400])
    assert (hands[440], hands[460]) == ([440, 440, 400], [460, 460, 400])


def test_a_timeout_of_30_s_needs_four_wheels(room: WheelRoom) -> None:
    room.add("request", 30_000)
    assert len(room.levels()) == 4
    assert [wheel.tick_ms for wheel in room.levels()] == [1, 20, 400, 8000]
    assert room.place_of("request") == (4, 3)
    assert room.run_until(60_000) == [24_000, 30_000]
    assert room.ran_at == {"request": 30_000}


def test_a_task_of_13_s_overflows_twelve_buckets_of_1_s_into_a_second_wheel() -> None:
    room = WheelRoom(tick_ms=1000, wheel_size=12)
    room.add("eleven", 11_000)
    assert len(room.levels()) == 1
    room.add("thirteen", 13_000)
    assert len(room.levels()) == 2
    assert room.place_of("thirteen") == (2, 1)
    assert room.expiration_of((2, 1)) == 12_000
    room.move_to(12_000)
    assert room.place_of("thirteen") == (1, 1)
    assert room.run_until(20_000) == [13_000]


def test_tasks_at_200_and_840_ms_wake_the_reaper_three_times_not_840() -> None:
    """On an event loop whose time is made of its own sleeps: see test_reaper."""
    from odradek.timer import ExpirationReaper, SystemTimer
    from tests.timer.virtual_time import VirtualTimeLoop

    loop = VirtualTimeLoop()

    async def scenario() -> list[int]:
        room = WheelRoom()
        timer = SystemTimer(loop.clock)
        reaper = ExpirationReaper(timer)
        timer.add(room.task("200", 200))
        timer.add(room.task("840", 840))
        reaper.start()
        wakeups = []
        seen = 0
        while timer.size:
            await asyncio.sleep(0.001)
            if reaper.wakeups > seen:
                seen = reaper.wakeups
                wakeups.append(loop.clock.now_ms())
        reaper.stop()
        assert room.ran == ["200", "840"]
        assert reaper.wakeups == 3
        return wakeups

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(scenario()) == [200, 800, 840]
