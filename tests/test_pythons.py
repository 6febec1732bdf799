"""Which Pythons are tested."""

from tests import pythons


def test_the_lowest_and_highest_installed_versions_are_tested_once() -> None:
    here = {(3, minor): f"python3.{minor}" for minor in (11, 12, 13)}
    assert pythons.to_test(here, (3, 11)) == [(3, 13)]
    assert pythons.to_test(here, (3, 12)) == [(3, 11), (3, 13)]
    assert pythons.to_test({(3, 11): "python3.11"}, (3, 11)) == []


def test_the_supported_versions_include_the_running_one() -> None:
    assert pythons.supported() == [(3, 11), (3, 12), (3, 13)]
    assert any(pythons.program(version) for version in pythons.supported())
