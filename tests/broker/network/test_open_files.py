import resource

from odradek.broker.network.open_files import (
    NO_LIMIT,
    allow_many_files,
    descriptors_for_connections,
    descriptors_for_sending,
    open_files_limit,
)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        assert open_files_limit() == hard - 1
        assert allow_many_files() == hard == open_files_limit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_quarter_of_the_descriptors_is_reserved_half_of_it_for_logs_alone() -> None:
    assert descriptors_for_connections(1024) == 768
    assert descriptors_for_sending(1024) == 896
    assert descriptors_for_connections(NO_LIMIT) > 1 << 30
