import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.metadata_store.interface import Create, Delete, Operation, Set, StoreDamaged
from odradek.broker.metadata_store.journal import (
    encode_journal_header,
    encode_line,
    encode_snapshot,
    encode_transaction,
    read_journal,
    read_snapshot,
)
from odradek.broker.metadata_store.tree import MetadataTree

SESSION = 11

CHANGES: list[list[Operation]] = [
    [Create("/topics"), Create("/topics/Größe", "Größe".encode())],
    [Create("/topics/raw", b"\xff\x00\xfe\n\r"), Set("/topics/Größe", None)],
    [Delete("/topics/raw")],
    [Create("/session", b"x", ephemeral=True)],
]


def written() -> tuple[MetadataTree, list[bytes]]:
    tree, lines = MetadataTree(), [encode_journal_header()]
    for operations in CHANGES:
        transaction = finished(tree.stage(operations, SESSION))
        lines.append(encode_transaction(transaction.number, transaction.entries))
        tree.apply(transaction.number, transaction.entries)
    return tree, lines


def same(one: MetadataTree, other: MetadataTree) -> bool:
    return one.number == other.number and list(one.items()) == list(other.items())


def test_reading_a_journal_restores_the_tree() -> None:
    tree, lines = written()
    again = MetadataTree()
    content = read_journal("j", b"".join(lines), again)
    assert content[:2] == (len(CHANGES), False)
    assert same(again, tree)


def test_reading_a_snapshot_restores_the_tree() -> None:
    tree, _ = written()
    again = MetadataTree()
    read_snapshot("s", encode_snapshot(tree), again)
    assert same(again, tree)
    assert again.children("/topics") == tree.children("/topics")


def test_a_journal_cut_at_any_byte_keeps_the_changes_before_it_and_is_torn_unless_cut_between_lines() -> None:
    _, lines = written()
    journal = b"".join(lines)
    for cut in range(len(lines[0]), len(journal)):
        whole, ends = 0, len(lines[0])
        while ends + len(lines[whole + 1]) <= cut:
            whole += 1
            ends += len(lines[whole])
        kept = whole + 1 if cut == ends + len(lines[whole + 1]) - 1 else whole  # complete except for the line end
        tree = MetadataTree()
        assert read_journal("j", journal[:cut], tree)[:2] == (kept, cut != ends), cut
        assert tree.number == kept


def test_a_tail_of_zeros_is_torn() -> None:
    _, lines = written()
    torn = b"".join(lines[:-1]) + lines[-1][:8] + b"\0" * (len(lines[-1]) - 9) + b"\n"
    tree = MetadataTree()
    assert read_journal("j", torn, tree)[:2] == (len(CHANGES) - 1, True)
    assert read_journal("j", b"".join(lines[:-1]) + b"\0" * 100, MetadataTree())[:2] == (len(CHANGES) - 1, True)


def test_a_flipped_byte_anywhere_is_damage_or_changes_nothing() -> None:
    tree, lines = written()
    journal = b"".join(lines)
    for position in range(len(journal)):
        flipped = bytearray(journal)
        flipped[position] ^= 0x15
        again = MetadataTree()
        if position == len(journal) - 1:  # the last line end: the change before it is complete
            assert read_journal("j", bytes(flipped), again).torn
            assert same(again, tree)
            continue
        with pytest.raises(StoreDamaged, match=r"j, line \d, byte \d+: "):
            read_journal("j", bytes(flipped), again)


def test_a_flipped_byte_anywhere_in_a_snapshot_is_damage() -> None:
    tree, _ = written()
    content = encode_snapshot(tree)
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 0x15
        with pytest.raises(StoreDamaged):
            read_snapshot("s", bytes(flipped), MetadataTree())


def test_a_snapshot_cut_anywhere_is_damage() -> None:
    tree, _ = written()
    content = encode_snapshot(tree)
    for cut in range(len(content) - 1):
        with pytest.raises(StoreDamaged):
            read_snapshot("s", content[:cut], MetadataTree())


def test_transactions_that_the_snapshot_contains_are_skipped_in_the_journal() -> None:
    tree, lines = written()
    again = MetadataTree()
    read_snapshot("s", encode_snapshot(tree), again)
    assert read_journal("j", b"".join(lines), again).applied == 0
    assert same(again, tree)


def test_missing_and_repeated_transactions_are_damage() -> None:
    _, lines = written()
    without_the_second = b"".join([lines[0], lines[1], *lines[3:]])
    with pytest.raises(StoreDamaged, match="transaction 3 follows 1"):
        read_journal("j", without_the_second, MetadataTree())
    with pytest.raises(StoreDamaged, match="transaction 1 follows 1"):
        read_journal("j", b"".join([lines[0], lines[1], lines[1]]), MetadataTree())
    with pytest.raises(StoreDamaged, match=r"is metadata\.snapshot missing\?"):
        read_journal("j", b"".join([lines[0], *lines[2:]]), MetadataTree())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"hello\n",
        encode_line([1]),
        encode_line({"format": "something else", "version": 1}),
        encode_line({"format": "odradek-metadata-journal", "version": 2}),
        encode_journal_header() + encode_line(["no object"]),
        encode_journal_header() + encode_line({"entries": []}),
        encode_journal_header() + encode_line({"number": 1, "entries": 5}),
        encode_journal_header() + encode_line({"number": 1, "entries": [["/a", "x", 0]]}),
        encode_journal_header() + encode_line({"number": 1, "entries": [["/a", 7, 0, 0, 1, False]]}),
        encode_journal_header() + encode_line({"number": 1, "entries": [["/a/b", None, 0, 0, 1, False]]}),
        encode_journal_header() + encode_line({"number": 1, "entries": [["a", None, 0, 0, 1, False]]}),
    ],
)
def test_an_undecodable_line_with_a_right_checksum_is_damage(content: bytes) -> None:
    with pytest.raises(StoreDamaged, match="metadata store damaged: j, line"):
        read_journal("j", content, MetadataTree())
