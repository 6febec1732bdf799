import pytest

from odradek.broker.metadata.topic_names import topic_name_fault


@pytest.mark.parametrize("name", ["a", "A-z.0_9", "...", "..a", "-", "_", "x" * 249])
def test_legal_topic_names_are_accepted(name: str) -> None:
    assert topic_name_fault(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b", "\u0661", "a\0"])
def test_illegal_topic_names_are_refused(name: str) -> None:
    assert topic_name_fault(name)
