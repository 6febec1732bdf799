"""Judges a history against the cluster's final state. Each invariant is a function that yields violations.

    kept          a record acknowledged with acks=all is in the log, where the leader said, unless the log begins later;
                  a refused one is not
    once          a record of an idempotent producer is in the log once
    in order      the records of an idempotent producer are in each partition in the order of its sends
    stable        a consumer never sees the high watermark of a leader move back (another leader, or the restarted one,
                  may begin with an older one); no log is truncated below a consumer's position; what was once read at
                  an offset stays there
    complete      a consumer gets every record between two of its positions, unless the log is compacted and a later one
                  of its key was sent before, and reads to the end; with read_committed, it gets none of an aborted
                  transaction
    one leader    only one broker accepts requests as the leader of an epoch
    atomic        of a transaction, consumers with read_committed get all records or none, as its end was answered
    offsets       a committed offset is never lost, and no offset appears that was not committed
    ended         in each partition a marker ends a transaction before its producer's next one: marker_invariants.py
    former epochs no record comes behind a marker of a later epoch: marker_invariants.py
    raised        the end of a transaction of version 2 gives the producer the next epoch, and again if it asks again
    groups        every record below the committed offset of a group was read by one of its members
    replicas, sound, states, in sync, coordinators, convergence
                  what replicas, coordinators and the cluster have, at all times and in the end: cluster_invariants.py
    fenced        a producer that was replaced under its transactional id can do nothing more; neither can a
    generations   commit of an earlier generation: fencing_invariants.py
    verified, unique, producer epochs, decided, last stable, replay
                  producers and transactions by the book: transaction_invariants.py
    strays, expired, instances
                  what groups and the controller refuse, and offsets that expire: group_invariants.py
    settled, refused, owners, member epochs, stale, obeyed, log owners, log epochs, targets
                  what members of consumer groups are told, and what their coordinators write:
                  consumer_group_invariants.py
    watches, fresh, confirmed, sessions, names, limits, heard
                  what the sessions with the metadata store promise: store_invariants.py
    compacted     a compacted log has the last record of each key: compaction_invariants.py
    derived, cleaned
                  what brokers derive from their batches, and what the cleaner leaves: derived_state_invariants.py
    retained, removed
                  what retention and requests delete, and where: retention_invariants.py
    settings      the settings that were confirmed last are in force everywhere, and
    directories   replicas are in the log directories to which they were moved: upkeep_invariants.py
    leaders, epochs, members, on disk
                  what is so at each change of leaders and in-sync replicas: isr_invariants.py
    unexpected    no broker logs an exception that nothing expects: unexpected.py
    moves, deletions
                  each step of reassignments and deletions: reassignment_invariants.py, deletion_invariants.py
    topics        a created topic exists with all its partitions until somebody deletes it, and a deleted one is nowhere
    reassignments none is under way in the end, and the replicas are those of the last one: topic_invariants.py
    rules, passwords, unwritten, stored, known
                  access rules and passwords that change: access_invariants.py
    admitted, proved, awake, denied
                  who has rights is served, and nobody else: login_invariants.py
    answered      no operation and no parked request waits for ever, and no transaction stays open
    quiet         when there is nothing to do, brokers and consumers wait instead of asking without end

The fault budget is not here: what a run may lose by Kafka's own rules must not be asked for. Each check assumes
consumers that read no topic with unclean elections, and groups whose committed offsets never go back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.access_invariants import (
    access_is_by_the_rules,
    brokers_know_who_has_access,
    changes_of_access_are_stored,
    passwords_admit,
    what_is_denied_is_unwritten,
)
from tests.simulation.cluster_invariants import (
    coordinators_know_what_is_committed,
    replicas_agree,
    replicas_of_sound_directories_go_on,
    states_keep_their_invariants,
    the_cluster_converges,
    who_joins_has_everything,
)
from tests.simulation.compaction_invariants import compacted_logs_keep_the_last_of_each_key, superseded_us
from tests.simulation.consumer_group_invariants import groups_settle, stray_beats_are_refused
from tests.simulation.derived_state_invariants import (
    cleanings_keep_what_must_stay,
    derived_state_is_that_of_the_batches,
)
from tests.simulation.fencing_invariants import earlier_generations_are_refused, earlier_producers_are_fenced
from tests.simulation.final_state import FinalState, ReplicaLog
from tests.simulation.group_invariants import brief_offsets_expire, replaced_members_are_refused, strays_are_refused
from tests.simulation.history import (
    Commit,
    Committed,
    History,
    Operation,
    Outcome,
    Read,
    Send,
    Started,
    Transaction,
    Truncated,
)
from tests.simulation.login_invariants import (
    logins_are_proved,
    sessions_end,
    who_has_no_rights_is_denied,
    who_has_rights_is_admitted,
)
from tests.simulation.marker_invariants import markers_end_transactions, records_of_former_epochs_are_refused
from tests.simulation.missteps import no_missteps
from tests.simulation.retention_invariants import (
    only_what_may_go_is_deleted,
    what_is_deleted_is_deleted_everywhere,
)
from tests.simulation.store_invariants import (
    calls_keep_to_their_session,
    changes_are_as_confirmed,
    long_changes_are_refused,
    names_count_creations,
    reads_are_fresh,
    the_controller_hears_of_brokers,
    watches_are_called_in_time,
)
from tests.simulation.topic_invariants import replicas_are_as_reassigned, topics_are_as_confirmed
from tests.simulation.transaction_invariants import (
    decisions_are_those_of_producers,
    epochs_grow_in_the_log,
    late_writes_are_refused,
    memory_is_what_the_log_says,
    nothing_is_open_below_the_last_stable_offset,
    producer_ids_are_unique,
)
from tests.simulation.upkeep_invariants import replicas_are_where_they_were_moved, settings_are_in_force
from tests.simulation.violation import Check, Violation

OVERDUE_MS = 1000
BUSY = 300.0
"""Messages a second. Each fetch of three brokers and some consumers waits half a second."""
ALL = -1


def check(history: History, final: FinalState) -> list[Violation]:
    """Returns all violations."""
    return [violation for invariant in INVARIANTS.values() for violation in invariant(history, final)]


# --- records ----------------------------------------------------------------------------------------------------


def acknowledged_records_are_kept(history: History, final: FinalState) -> Iterator[Violation]:
    """kept"""
    for partition, sends in _sends_by_partition(history).items():
        log = final.logs.get(partition)
        if log is not None and log.is_compacted:
            continue
        texts = {record.offset: record.text for record in log.records} if log else {}
        present = set(texts.values())
        for send in sends:
            if send.outcome is Outcome.FAILED:
                for text in send.records:
                    if text in present:
                        yield Violation("kept", f"{text} was refused, and is in the log of {partition}", (send,))
            elif send.outcome is Outcome.OK and send.acks == ALL:
                yield from _kept(send, log, texts, present)


def _kept(send: Send, log: ReplicaLog | None, texts: Mapping[int, str], present: set[str]) -> Iterator[Violation]:
    for number, text in enumerate(send.records):
        start_offset = 0 if log is None else log.log_start_offset
        if text not in present and max(send.base_offset, 0) + number < start_offset:
            continue
        if text not in present:
            yield Violation("kept", f"{text} was acknowledged, and is not in the log of {send.partition}", (send,))
            return
        offset = send.base_offset + number
        if send.base_offset >= 0 and texts.get(offset) != text:
            found = texts.get(offset, "nothing")
            yield Violation("kept", f"{text} was acknowledged at offset {offset}, where the log has {found}", (send,))
            return


def idempotent_records_are_there_once(history: History, final: FinalState) -> Iterator[Violation]:
    """once"""
    sent = {text: send for send in history.of(Send) if send.is_idempotent for text in send.records}
    for partition, log in final.logs.items():
        seen: dict[str, int] = {}
        for record in log.records:
            send = sent.get(record.text)
            if send is None:
                continue
            if record.text in seen:
                where = f"at {seen[record.text]} and {record.offset}"
                yield Violation("once", f"{record.text} is in the log of {partition} twice, {where}", (send,))
            seen[record.text] = record.offset


def idempotent_records_are_in_order(history: History, final: FinalState) -> Iterator[Violation]:
    """in order"""
    for partition, sends in _sends_by_partition(history).items():
        log = final.logs.get(partition)
        if log is None:
            continue
        place: dict[str, tuple[int, Send]] = {}
        for send in sends:
            if send.is_idempotent:
                for text in send.records:
                    place[text] = (len(place), send)
        latest: dict[str, tuple[int, Send, str]] = {}
        for record in log.records:
            found = place.get(record.text)
            if found is None:
                continue
            number, send = found
            before = latest.get(send.process)
            if before is not None and number < before[0]:
                text = f"{record.text} at {record.offset} of {partition} comes after {before[2]}, which was sent later"
                yield Violation("in order", text, (send, before[1]))
            else:
                latest[send.process] = (number, send, record.text)


# --- consumers --------------------------------------------------------------------------------------------------


def what_consumers_see_is_stable(history: History, final: FinalState) -> Iterator[Violation]:
    """stable"""
    latest: dict[tuple[str, TopicPartition], Read] = {}
    known: dict[tuple[TopicPartition, int], tuple[str, Operation | None]] = {
        (partition, record.offset): (record.text, None)
        for partition, log in final.logs.items()
        for record in log.records
    }
    for read in history.operations:
        if isinstance(read, Started):
            latest = {key: before for key, before in latest.items() if before.broker_id != read.broker_id}
        if not isinstance(read, Read):
            continue
        before = latest.get((read.process, read.partition))
        if (
            before is not None
            and before.leader_epoch == read.leader_epoch
            and before.broker_id == read.broker_id
            and read.high_watermark < before.high_watermark
        ):
            text = f"the high watermark of {read.partition} moved from {before.high_watermark} to {read.high_watermark}"
            yield Violation("stable", text, (before, read))
        latest[read.process, read.partition] = read
        for record in read.records:
            key = (read.partition, record.offset)
            text_there, reader = known.setdefault(key, (record.text, read))
            if text_there != record.text:
                text = f"{read.partition} had {record.text} at {record.offset}, and elsewhere has {text_there}"
                yield Violation("stable", text, (read,) if reader is None else (reader, read))
                break
    for truncated in history.of(Truncated):
        if truncated.end_offset < truncated.position:
            yield Violation("stable", truncated.describe(), (truncated,))


def consumers_get_every_record(history: History, final: FinalState) -> Iterator[Violation]:
    """complete"""
    ends = _ends_of_transactions(history)
    offsets: dict[TopicPartition, list[tuple[int, str]]] = {
        partition: [(record.offset, record.text) for record in log.records] for partition, log in final.logs.items()
    }
    sends = _sends_by_partition(history)
    superseded = {
        partition: superseded_us(sends.get(partition, ())) for partition, log in final.logs.items() if log.is_compacted
    }
    for read in history.of(Read):
        log = final.logs.get(read.partition)
        if log is None or read.next_position <= read.position:
            continue
        cleanable = superseded.get(read.partition, {})
        got = {record.text for record in read.records}
        for offset, text in offsets[read.partition][_first_at(offsets[read.partition], read.position) :]:
            if offset >= read.next_position:
                break
            if text in got or (read.is_committed and ends.get(text) is not True):
                continue
            if cleanable.get(text, read.ended_us) >= read.ended_us:
                yield Violation("complete", f"{text} at {offset} of {read.partition} was not returned", (read,))
                break
    for consumer, partition, position, end_offset in final.unread:
        text = f"{consumer} is at {position} of {partition} in the end, which has records to {end_offset}"
        yield Violation("complete", text)


def _first_at(records: list[tuple[int, str]], offset: int) -> int:
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        if records[middle][0] < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _ends_of_transactions(history: History) -> dict[str, bool | None]:
    """For each record: whether its transaction is known to have committed; True for records of none; None: unknown."""
    ends: dict[str, bool | None] = {}
    for send in history.of(Send):
        end = True if send.transaction is None else _has_committed(send.transaction)
        ends.update(dict.fromkeys(send.records, end))
    return ends


def _has_committed(transaction: Transaction) -> bool | None:
    if transaction.outcome is Outcome.FAILED:  # it ended before the client asked for its commit
        return False
    return transaction.commits if transaction.outcome is Outcome.OK else None


# --- leaders ----------------------------------------------------------------------------------------------------


def an_epoch_has_one_leader(history: History, final: FinalState) -> Iterator[Violation]:
    """one leader"""
    leaders: dict[tuple[TopicPartition, int], Send | Read] = {}
    epochs = {
        (partition, record.offset, record.text): record.epoch
        for partition, log in final.logs.items()
        for record in log.records
    }
    for operation in history.operations:
        if isinstance(operation, Read) and operation.leader_epoch >= 0:
            epoch = operation.leader_epoch
        elif isinstance(operation, Send) and operation.outcome is Outcome.OK and operation.attempts == 1:
            epoch = epochs.get((operation.partition, operation.base_offset, operation.records[0]), -1)
        else:
            continue
        first = leaders.setdefault((operation.partition, epoch), operation)
        if epoch >= 0 and first.broker_id != operation.broker_id:
            brokers = f"brokers {first.broker_id} and {operation.broker_id}"
            yield Violation(
                "one leader", f"{brokers} were leaders of {operation.partition} in epoch {epoch}", (first, operation)
            )


# --- transactions -----------------------------------------------------------------------------------------------


def transactions_are_atomic(history: History, final: FinalState) -> Iterator[Violation]:
    """atomic"""
    reads = [read for read in history.of(Read) if read.is_committed]
    visible = {record.text for read in reads for record in read.records}
    furthest: dict[TopicPartition, int] = {}
    for read in reads:
        furthest[read.partition] = max(furthest.get(read.partition, 0), read.next_position)
    offsets = {
        partition: {record.text: record.offset for record in log.records} for partition, log in final.logs.items()
    }
    by_transaction: dict[Transaction, list[Send]] = defaultdict(list)
    for send in history.of(Send):
        if send.transaction is not None:
            by_transaction[send.transaction].append(send)
    for transaction, sends in by_transaction.items():
        seen, unseen = [], []
        for send in sends:
            for text in send.records:
                offset = offsets.get(send.partition, {}).get(text)
                if text in visible:
                    seen.append(text)
                elif offset is not None and offset < furthest.get(send.partition, 0):
                    unseen.append(text)
        committed = _has_committed(transaction)
        if seen and committed is False:
            yield Violation("atomic", f"{seen[0]} was read, but its transaction was aborted", (transaction, *sends))
        elif unseen and committed is True:
            yield Violation("atomic", f"{unseen[0]} of a committed transaction was not read", (transaction, *sends))
        elif seen and unseen:
            text = f"{seen[0]} was read, and {unseen[0]} of the same transaction was not"
            yield Violation("atomic", text, (transaction, *sends))


# --- groups -----------------------------------------------------------------------------------------------------


def committed_offsets_are_kept(history: History, final: FinalState) -> Iterator[Violation]:
    """offsets"""
    commits: dict[tuple[str, TopicPartition], list[tuple[int, Commit]]] = defaultdict(list)
    for commit in history.of(Commit):
        for partition, offset in commit.offsets.items():
            commits[commit.group, partition].append((offset, commit))
    for answer in history.of(Committed):
        if answer.outcome is not Outcome.OK:
            continue
        for partition, offset in answer.offsets.items():
            of_partition = commits.get((answer.group, partition), [])
            for committed, commit in of_partition:
                if committed > offset and _was_confirmed(commit, answer.invoked_us):
                    text = f"{answer.group} had committed {committed} of {partition}, but reads {offset}"
                    yield Violation("offsets", text, (commit, answer))
                    break
            if offset >= 0 and not any(
                committed == offset and _may_count(commit, answer.ended_us) for committed, commit in of_partition
            ):
                text = f"{answer.group} reads {offset} of {partition}, which nobody committed"
                yield Violation("offsets", text, (answer,))


def _was_confirmed(commit: Commit, before_us: int) -> bool:
    ends: Operation = commit if commit.transaction is None else commit.transaction
    counts = commit.transaction is None or commit.transaction.commits
    return counts and commit.outcome is Outcome.OK and ends.outcome is Outcome.OK and ends.ended_us <= before_us


def _may_count(commit: Commit, before_us: int) -> bool:
    if commit.outcome is Outcome.FAILED or commit.invoked_us > before_us:
        return False
    return commit.transaction is None or _has_committed(commit.transaction) is not False


def groups_skip_nothing(history: History, final: FinalState) -> Iterator[Violation]:
    """groups"""
    last: dict[str, Committed] = {}
    members: dict[str, str] = {}
    for operation in history.operations:
        if isinstance(operation, Committed) and operation.outcome is Outcome.OK:
            last[operation.group] = operation
        elif isinstance(operation, Commit) and operation.transaction is None:
            members[operation.process] = operation.group
    read: dict[str, set[str]] = defaultdict(set)
    for each in history.of(Read):
        if each.process in members:
            read[members[each.process]].update(record.text for record in each.records)
    ends = _ends_of_transactions(history)
    for group, answer in last.items():
        if group not in read:
            continue
        for partition, offset in answer.offsets.items():
            log = final.logs.get(partition)
            for record in log.records if log else ():
                if record.offset >= offset:
                    break
                if record.text not in read[group] and ends.get(record.text) is True:
                    text = f"{record.text} at {record.offset} of {partition} was read by no member of {group}"
                    yield Violation("groups", text, (answer,))
                    break


# --- the end ----------------------------------------------------------------------------------------------------


def everything_is_answered(history: History, final: FinalState) -> Iterator[Violation]:
    """answered"""
    for operation in history.operations:
        if operation.outcome is Outcome.PENDING:
            yield Violation("answered", f"never ended: {operation.describe()}", (operation,))
    for waiting in final.waiting:
        if waiting.overdue_ms > OVERDUE_MS:
            late = f"{waiting.overdue_ms} ms after its time"
            yield Violation("answered", f"broker {waiting.broker_id} still holds {waiting.what}, {late}")
    for partition, log in final.logs.items():
        if log.last_stable_offset is not None and log.last_stable_offset < log.high_watermark:
            text = f"{partition} has an open transaction from offset {log.last_stable_offset}"
            yield Violation("answered", f"{text}; its high watermark is {log.high_watermark}")


def the_end_is_quiet(history: History, final: FinalState) -> Iterator[Violation]:
    """quiet"""
    if final.messages_per_second > BUSY:
        yield Violation("quiet", f"{final.messages_per_second:.0f} messages a second while there was nothing to do")


def _sends_by_partition(history: History) -> dict[TopicPartition, list[Send]]:
    found: dict[TopicPartition, list[Send]] = defaultdict(list)
    for send in history.of(Send):
        found[send.partition].append(send)
    return found


INVARIANTS: Mapping[str, Check] = {
    "kept": acknowledged_records_are_kept,
    "once": idempotent_records_are_there_once,
    "in order": idempotent_records_are_in_order,
    "stable": what_consumers_see_is_stable,
    "complete": consumers_get_every_record,
    "one leader": an_epoch_has_one_leader,
    "atomic": transactions_are_atomic,
    "ended": markers_end_transactions,
    "former epochs": records_of_former_epochs_are_refused,
    "offsets": committed_offsets_are_kept,
    "groups": groups_skip_nothing,
    "fenced": earlier_producers_are_fenced,
    "generations": earlier_generations_are_refused,
    "verified": late_writes_are_refused,
    "unique": producer_ids_are_unique,
    "producer epochs": epochs_grow_in_the_log,
    "decided": decisions_are_those_of_producers,
    "last stable": nothing_is_open_below_the_last_stable_offset,
    "replay": memory_is_what_the_log_says,
    "strays": strays_are_refused,
    "expired": brief_offsets_expire,
    "instances": replaced_members_are_refused,
    "in sync": who_joins_has_everything,
    **{
        name: no_missteps(name)
        for name in (
            "leaders",
            "epochs",
            "members",
            "on disk",
            "moves",
            "deletions",
            "unexpected",
            "raised",
            "owners",
            "member epochs",
            "stale",
            "obeyed",
            "log owners",
            "log epochs",
            "targets",
        )
    },
    "settled": groups_settle,
    "refused": stray_beats_are_refused,
    "coordinators": coordinators_know_what_is_committed,
    "watches": watches_are_called_in_time,
    "fresh": reads_are_fresh,
    "confirmed": changes_are_as_confirmed,
    "sessions": calls_keep_to_their_session,
    "names": names_count_creations,
    "limits": long_changes_are_refused,
    "heard": the_controller_hears_of_brokers,
    "admitted": who_has_rights_is_admitted,
    "proved": logins_are_proved,
    "awake": sessions_end,
    "denied": who_has_no_rights_is_denied,
    "rules": access_is_by_the_rules,
    "passwords": passwords_admit,
    "unwritten": what_is_denied_is_unwritten,
    "stored": changes_of_access_are_stored,
    "known": brokers_know_who_has_access,
    "derived": derived_state_is_that_of_the_batches,
    "cleaned": cleanings_keep_what_must_stay,
    "replicas": replicas_agree,
    "sound": replicas_of_sound_directories_go_on,
    "states": states_keep_their_invariants,
    "convergence": the_cluster_converges,
    "compacted": compacted_logs_keep_the_last_of_each_key,
    "retained": only_what_may_go_is_deleted,
    "removed": what_is_deleted_is_deleted_everywhere,
    "settings": settings_are_in_force,
    "directories": replicas_are_where_they_were_moved,
    "topics": topics_are_as_confirmed,
    "reassignments": replicas_are_as_reassigned,
    "answered": everything_is_answered,
    "quiet": the_end_is_quiet,
}
