from collections.abc import Callable

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.metadata_store.interface import (
    BadArguments,
    BadVersion,
    Change,
    Check,
    Create,
    Delete,
    EntryExists,
    HasChildren,
    NoEntry,
    Operation,
    Set,
    WatchEvent,
)
from odradek.broker.metadata_store.tree import MetadataTree

SESSION = 11


def run(tree: MetadataTree, *operations: Operation) -> list[str | int | None]:
    transaction = finished(tree.stage(operations, SESSION))
    tree.apply(transaction.number, transaction.entries)
    tree.check()
    return transaction.results


def snapshot(tree: MetadataTree) -> dict[str, object]:
    return {path: (entry, tree.children(path)) for path, entry in tree.items()}


def test_an_entry_counts_its_changes_and_its_children() -> None:
    tree = MetadataTree()
    assert run(tree, Create("/a", b"1"), Create("/a/b"), Set("/a", b"2"), Set("/a", b"3", 1)) == ["/a", "/a/b", 1, 2]
    entry = tree.get("/a")
    assert entry is not None
    assert (entry.data, entry.version, entry.children_version, entry.created) == (b"3", 2, 1, 1)
    run(tree, Delete("/a/b"))
    entry = tree.get("/a")
    assert entry is not None
    assert (entry.version, entry.children_version) == (2, 2)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), EntryExists),
        (Create("/"), EntryExists),
        (Create("/missing/child"), NoEntry),
        (Create("/session/child"), BadArguments),
        (Create("no-slash"), BadArguments),
        (Create("/a//b"), BadArguments),
        (Create("/a/"), BadArguments),
        (Set("/missing", b""), NoEntry),
        (Set("/a", b"", 1), BadVersion),
        (Delete("/missing"), NoEntry),
        (Delete("/a"), HasChildren),
        (Delete("/a/b", 7), BadVersion),
        (Delete("/"), BadArguments),
        (Check("/missing"), NoEntry),
        (Check("/a", 3), BadVersion),
    ],
)
def test_an_impossible_operation_is_refused_with_its_index_and_changes_nothing(
    operation: Operation, error: type[Exception]
) -> None:
    tree = MetadataTree()
    run(tree, Create("/a"), Create("/a/b"), Create("/session", ephemeral=True))
    before = snapshot(tree)
    with pytest.raises(error) as caught:
        run(tree, Create("/x"), Set("/a/b", b"changed"), operation)
    assert caught.value.index == 2  # type: ignore[attr-defined]
    assert snapshot(tree) == before


def test_operations_see_the_previous_ones() -> None:
    tree = MetadataTree()
    run(tree, Create("/a"), Create("/a/b"))
    results = run(tree, Delete("/a/b"), Delete("/a"), Create("/a", b"new"), Create("/a/c"), Check("/a", 0))
    assert results == [None, None, "/a", "/a/c", None]
    assert tree.children("/a") == ["c"]
    run(tree, Create("/x"), Create("/x/y"), Delete("/x/y"), Delete("/x"), Create("/x"), Create("/x/z"))
    assert tree.children("/x") == ["z"]
    with pytest.raises(HasChildren):
        run(tree, Create("/a/d"), Delete("/a/c"), Delete("/a"))


def test_sequential_entries_are_numbered_by_the_parents_counter_without_repetition() -> None:
    tree = MetadataTree()
    run(tree, Create("/changes"))
    first, second = run(tree, Create("/changes/c_", sequential=True), Create("/changes/c_", sequential=True))
    assert (first, second) == ("/changes/c_0000000000", "/changes/c_0000000001")
    run(tree, Delete("/changes/c_0000000001"))
    assert run(tree, Create("/changes/c_", sequential=True)) == ["/changes/c_0000000002"]


def test_events_name_changed_entries_and_parents_with_changed_children() -> None:
    tree = MetadataTree()
    transaction = finished(tree.stage([Create("/a"), Create("/a/b"), Set("/a/b", b"1"), Delete("/a/b")], SESSION))
    assert [event for event in transaction.events if event.path == "/a/b"] == [
        WatchEvent(Change.CREATED, "/a/b"),
        WatchEvent(Change.CHANGED, "/a/b"),
        WatchEvent(Change.DELETED, "/a/b"),
    ]
    assert WatchEvent(Change.CHILDREN, "/") in transaction.events
    assert WatchEvent(Change.CHILDREN, "/a") in transaction.events


@pytest.mark.parametrize(
    "damage",
    [
        lambda tree: setattr(tree, "number", 0),
        lambda tree: tree._children["/a"].clear(),
        lambda tree: tree._children["/a"].update({"c": None}),
        lambda tree: tree._children.pop("/a/b"),
        lambda tree: tree._entries.pop("/a"),
        lambda tree: tree._children["/a"].update({"c": tree._children["/a"].pop("b")}),
        lambda tree: tree._entries.update({"/a": tree.get("/a")._replace(owner=SESSION)}),
        lambda tree: tree._entries.update({"/a": tree.get("/a")._replace(created=3)}),
    ],
    ids=["number", "no names", "names", "no children", "parent", "another name", "ephemeral parent", "created"],
)
def test_a_broken_invariant_is_found(damage: Callable[[MetadataTree], object]) -> None:
    tree = MetadataTree()
    run(tree, Create("/a"), Create("/a/b"))
    damage(tree)
    with pytest.raises(AssertionError):
        tree.check()
