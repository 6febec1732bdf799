"""Which Pythons are tested."""

from tests import pythons


def test_the_lowest_and_the_highest_that_are_here_are_tested_but_for_the_one_that_was() -> None:
    here = {(3, minor): f"python3.{minor}" for minor in (11, 12, 13)}
    assert pythons.to_test(here, (3, 11)) == [(3, 13)]
    assert pythons.to_test(here, (3, 12)) == [(3, 11), (3, 13)]
    assert pythons.to_test({(3, 11): "python3.11"}, (3, 11)) == []


def test_the_project_names_its_versions_and_the_one_that_runs_is_among_them() -> None:
    assert pythons.supported() == [(3, 11), (3, 12), (3, 13)]
    assert any(pythons.program(version) for version in pythons.supported())
