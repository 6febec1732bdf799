"""Which topics a group is subscribed to, as members come, change and go, and as expressions are resolved."""

from __future__ import annotations

from random import Random

from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.subscriptions import ResolvedRegex, Subscriptions, topics_of


def member(name: str, *topics: str, regex: str = "") -> ConsumerMember:
    return ConsumerMember(name, subscribed_topics=frozenset(topics), subscribed_regex=regex)


def matched(*topics: str) -> ResolvedRegex:
    return ResolvedRegex(frozenset(topics), 1, 1)


def test_a_topic_is_subscribed_while_a_member_names_it_or_an_expression_has_matched_it() -> None:
    subscriptions = Subscriptions()
    first, second = member("1", "a", "b"), member("2", "b", regex="c.*")
    subscriptions.move(None, first)
    subscriptions.move(None, second)
    subscriptions.resolve("c.*", matched("b", "c1"))
    assert subscriptions.names() == {"a", "b", "c1"}
    subscriptions.move(first, None)
    assert subscriptions.names() == {"b", "c1"}
    subscriptions.move(second, member("2", regex="c.*"))
    assert "b" in subscriptions
    subscriptions.resolve("c.*", None)
    assert subscriptions.names() == frozenset()


def test_an_expression_that_is_not_resolved_matches_no_topic() -> None:
    assert topics_of(member("1", "a", regex="b.*"), {}) == {"a"}
    resolved = {"b.*": matched("b1")}
    assert topics_of(member("1", "a", regex="b.*"), resolved) == {"a", "b1"}
    assert topics_of(member("1", regex="b.*"), resolved) == {"b1"}


def test_members_with_the_same_topics_share_one_set_until_the_last_has_gone() -> None:
    subscriptions = Subscriptions()
    first = member("1", "a", "b")
    subscriptions.move(None, first)
    assert subscriptions.shared(["b", "a"]) is first.subscribed_topics
    subscriptions.move(first, None)
    assert subscriptions.shared(["b", "a"]) is not first.subscribed_topics


def test_what_a_change_would_lead_to_is_what_it_leads_to() -> None:
    random = Random(6)
    names = "abcdef"
    regexes = ("", "x", "y")
    for _ in range(200):
        subscriptions = Subscriptions()
        members: dict[str, ConsumerMember] = {}
        for _ in range(30):
            before = subscriptions.names()
            if random.random() < 0.3:
                regex = random.choice(regexes[1:])
                topics = random.sample(names, random.randint(0, 3))
                resolved = matched(*topics) if random.random() < 0.7 else None
                expected = subscriptions.after((), {regex: resolved})
                subscriptions.resolve(regex, resolved)
            else:
                changes: list[tuple[ConsumerMember | None, ConsumerMember | None]] = []
                for name in random.sample("123", random.randint(1, 3)):
                    topics = random.sample(names, random.randint(0, 3))
                    new = member(name, *topics, regex=random.choice(regexes)) if random.random() < 0.8 else None
                    changes.append((members.pop(name, None), new))
                    if new is not None:
                        members[name] = new
                expected = subscriptions.after(changes, {})
                for change in changes:
                    subscriptions.move(*change)
            assert expected == (None if subscriptions.names() == before else subscriptions.names())
            for regex in regexes[1:]:
                used = [each for each in members.values() if each.subscribed_regex == regex]
                assert subscriptions.members_with(regex) == len(used)
                assert (regex in subscriptions.regexes()) == bool(used)
