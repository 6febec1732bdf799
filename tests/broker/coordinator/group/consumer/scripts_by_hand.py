"""Scripts of groups that are written by hand: what happens rarely, or never, at random. hand_recorder.py records them.

Member ids are chosen, or "$3": the one that the broker made in the answer to request 3. They are numbered from 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.broker.coordinator.group.consumer.wire_group import REBALANCE_MS

Step = list[Any]

RESOLVED: Step = ["resolved"]
DESCRIBED: Step = ["described"]
DELETED_GROUP: Step = ["delete", {}]
SESSION_MS, SHORT_MS, PAUSE_MS = 10_000, 6000, 4000
"""Nothing falls due within two seconds of a step."""
SHORT_SESSION = {"consumer.session.timeout.ms": str(SESSION_MS)}
REGEX_PAUSE_MS = 10_500


class ScriptByHand(NamedTuple):
    """`policy`: the broker's group.consumer.migration.policy. `settings`: the group's own."""

    kind: str
    steps: list[Step]
    topics: dict[str, int]
    settings: dict[str, str]
    policy: str


def beat(member: str, epoch: int, **fields: Any) -> Step:
    return ["beat", {"member": member, "epoch": epoch, **fields}]


def own(member: str, epoch: int, **owned: list[int]) -> Step:
    return beat(member, epoch, owned=owned)


def join(member: str, *topics: str, **fields: Any) -> Step:
    return beat(member, 0, **{"timeout": REBALANCE_MS, "topics": list(topics), "owned": {}, **fields})


def wait(ms: int = PAUSE_MS) -> Step:
    return ["wait", ms]


def partitions(topic: str, count: int) -> Step:
    return ["partitions", topic, count]


def deleted(topic: str) -> Step:
    return ["deleted", topic]


def enter(member: str, *topics: str, **fields: Any) -> Step:
    """JoinGroup of a classic member."""
    return [
        "join",
        {"member": member, "topics": list(topics), "owned": {}, "version": 9, "protocols": ["range"], **fields},
    ]


def sync(member: str, generation: int, assignments: dict[str, Any] | None = None, **fields: Any) -> Step:
    return ["sync", {"member": member, "generation": generation, "assignments": assignments or {}, **fields}]


def stay(member: str, generation: int, **fields: Any) -> Step:
    return ["stay", {"member": member, "generation": generation, **fields}]


def leave(*members: tuple[str, str | None]) -> Step:
    return ["leave", {"members": [list(each) for each in members]}]


def commit(member: str, epoch: int, version: int = 9, **offsets: dict[str, int]) -> Step:
    return ["commit", {"member": member, "epoch": epoch, "version": version, "offsets": offsets}]


def fetch(member: str | None, epoch: int) -> Step:
    return ["fetch", {"member": member, "epoch": epoch}]


SCRIPTS: dict[str, ScriptByHand] = {}


def script(
    kind: str,
    sentence: str,
    *steps: Step,
    settings: dict[str, str] | None = None,
    policy: str = "bidirectional",
    **topics: int,
) -> None:
    assert sentence not in SCRIPTS, sentence
    SCRIPTS[sentence] = ScriptByHand(kind, list(steps), topics or {"foo": 4, "bar": 2}, settings or {}, policy)


ALL = [0, 1, 2, 3]
TWO = [join("A", "foo"), join("B", "foo"), own("A", 2, foo=ALL), own("A", 2, foo=[0, 1]), beat("B", 3)]
"""A and B share foo, in epoch 3."""

# --- joins and leaves -----------------------------------------------------------------------------------------------

script("joins", "the first member gets everything", join("A", "foo", "bar"), beat("A", 2), DESCRIBED)
script("joins", "a second one gets what the first gives up", *TWO, DESCRIBED, beat("A", 3), beat("B", 3), DESCRIBED)
script(
    "joins",
    "six members join before the first one answers",
    *(join(f"m{n}", "foo", "bar") for n in range(6)),
    DESCRIBED,
    own("m0", 2, foo=ALL, bar=[0, 1]),
    own("m0", 2, foo=[0], bar=[0]),
    *(beat(f"m{n}", epoch) for n, epoch in enumerate((7, 3, 4, 5, 6, 7))),
    *(beat(f"m{n}", 7) for n in range(6)),
    DESCRIBED,
)
script("joins", "a member joins again and again", join("A", "foo"), join("A", "foo"), join("A", "bar"), DESCRIBED)
script(
    "joins", "a member of a topic that is not there", join("A", "none"), DESCRIBED, join("B"), beat("B", 2), DESCRIBED
)
script(
    "joins",
    "a broker makes the ids of old clients",
    join("", "foo", version=0),
    beat("$0", 2, version=0, owned={"foo": ALL}),
    join("", "foo", version=1),
    beat("", 2, version=0),
    beat("", -1, version=0),
    beat("$0", -1, version=0),
    beat("$0", -1, version=0),
)
script(
    "joins",
    "joins that are no joins",
    beat("A", 0),
    join("A", "foo", timeout=-1),
    join("A", "foo", owned=None),
    join("A", "foo", owned={"foo": [0]}),
    join("A", "foo", topics=None),
    join("A", "foo", instance=""),
    join("A", "foo", rack=""),
    join("A", "foo", assignor="mine"),
    join("A", "foo", assignor=""),
    join("", "foo"),
    beat("A", -2),
    beat("A", -3),
    beat("A", 1),
    beat("A", -1),
    DESCRIBED,
)
script(
    "joins",
    "the assignor that most want",
    join("A", "foo", assignor="uniform"),
    DESCRIBED,
    beat("A", 2, assignor="range"),
    join("B", "bar", assignor="range"),
    join("C", "baz", assignor="uniform"),
    beat("B", 4, assignor="uniform"),
    DESCRIBED,
    beat("A", 3, assignor="uniform"),
    beat("C", 5, assignor="range"),
    DESCRIBED,
    foo=4,
    bar=2,
    baz=2,
)
script("joins", "a full group takes nobody", *TWO, join("C", "foo"), join("A", "foo"), DESCRIBED, policy="disabled")
script(
    "joins",
    "a static member finds its place in a full group",
    join("A", "foo", instance="i"),
    join("B", "foo"),
    beat("A", -2, instance="i"),
    join("C", "foo", instance="j"),
    join("D", "foo", instance="i"),
    DESCRIBED,
    policy="disabled",
)
script("leaves", "a member leaves and comes back", *TWO, beat("A", -1), beat("B", 3), join("A", "foo"), DESCRIBED)
script(
    "leaves",
    "the last member leaves",
    join("A", "foo"),
    beat("A", -1),
    DESCRIBED,
    beat("A", 2),
    beat("A", -1),
    join("A", "bar"),
    DESCRIBED,
)
script(
    "leaves", "strangers leave", beat("A", -1), join("A", "foo"), beat("B", -1), beat("B", 5), beat("A", -1), DESCRIBED
)
script(
    "leaves",
    "a member leaves that must give up something",
    *TWO[:3],
    beat("A", -1),
    beat("B", 3),
    DESCRIBED,
)
script(
    "leaves",
    "a newcomer leaves before it has anything",
    *TWO[:3],
    beat("B", -1),
    own("A", 2, foo=ALL),
    own("A", 2, foo=[0, 1]),
    beat("A", 3),
    beat("A", 4),
    DESCRIBED,
)
script(
    "leaves",
    "a newcomer leaves while others wait for each other",
    join("A", "foo"),
    join("B", "foo"),
    join("C", "foo"),
    own("A", 2, foo=ALL),
    beat("C", -1),
    own("A", 2, foo=[0, 1]),
    beat("B", 3),
    beat("B", 5),
    beat("A", 5),
    DESCRIBED,
)
script(
    "leaves",
    "members of the new protocol leave by LeaveGroup",
    join("A", "foo"),
    join("B", "foo", instance="i"),
    join("C", "foo"),
    leave(("A", None), ("", "i"), ("D", None), ("", "j")),
    DESCRIBED,
    beat("C", 4),
    leave(("C", "i")),
    DESCRIBED,
)
script(
    "leaves",
    "groups are deleted",
    DELETED_GROUP,
    join("A", "foo"),
    DELETED_GROUP,
    commit("A", 2, foo={"0": 7}),
    beat("A", -1),
    DESCRIBED,
    DELETED_GROUP,
    DESCRIBED,
    fetch(None, -1),
    join("A", "foo"),
    DESCRIBED,
)

# --- fences and lost responses --------------------------------------------------------------------------------------

script(
    "fences",
    "epochs of the future and of the past",
    *TWO,
    beat("A", 4),
    beat("A", 2**31 - 1),
    beat("A", 2),
    own("A", 2, foo=[0, 1]),
    own("A", 2, foo=[0]),
    own("A", 2, foo=[0, 1, 2]),
    own("A", 1, foo=[0, 1]),
    beat("A", 3),
    DESCRIBED,
)
script(
    "fences",
    "epochs of strangers",
    *TWO,
    beat("C", 3),
    beat("C", 0),
    own("C", 3, foo=[0]),
    beat("B", 3, instance="i"),
    beat("C", -2, instance="i"),
    beat("a", 3),
    DESCRIBED,
)
script(
    "fences",
    "a fenced member joins again and keeps its place",
    *TWO,
    beat("A", 9),
    join("A", "foo"),
    beat("B", 3),
    DESCRIBED,
)
script(
    "fences",
    "a silent member is fenced",
    *TWO,
    wait(),
    beat("B", 3),
    wait(),
    beat("B", 3),
    wait(),
    DESCRIBED,
    beat("A", 3),
    beat("B", 3),
    join("A", "foo"),
    DESCRIBED,
    settings=SHORT_SESSION,
)
script(
    "fences",
    "a heartbeat that is refused does not count",
    join("A", "foo"),
    wait(),
    beat("A", 7),
    wait(),
    beat("A", 7),
    wait(),
    DESCRIBED,
    beat("A", 2),
    settings=SHORT_SESSION,
)
script(
    "fences",
    "all are silent",
    *TWO,
    wait(3 * PAUSE_MS),
    DESCRIBED,
    beat("A", 3),
    beat("B", 3),
    join("B", "foo"),
    DESCRIBED,
    settings=SHORT_SESSION,
)
script(
    "fences",
    "a member that does not give up in time is fenced",
    join("A", "foo", timeout=SHORT_MS),
    join("B", "foo"),
    own("A", 2, foo=ALL),
    wait(),
    own("A", 2, foo=ALL),
    DESCRIBED,
    wait(),
    DESCRIBED,
    own("A", 2, foo=[0, 1]),
    beat("B", 3),
    DESCRIBED,
)
script(
    "fences",
    "a member that gives up in time is not",
    join("A", "foo", timeout=SHORT_MS),
    join("B", "foo"),
    own("A", 2, foo=ALL),
    wait(),
    own("A", 2, foo=[0, 1]),
    wait(),
    wait(),
    DESCRIBED,
    beat("A", 3),
)
script(
    "fences",
    "a member that has less time now",
    join("A", "foo"),
    join("B", "foo"),
    own("A", 2, foo=ALL),
    beat("A", 2, timeout=SHORT_MS),
    wait(2 * PAUSE_MS),
    DESCRIBED,
    own("A", 2, foo=[0, 1]),
    DESCRIBED,
)
script(
    "lost responses",
    "to a join",
    join("A", "foo"),
    join("A", "foo"),
    join("B", "foo"),
    join("B", "foo"),
    own("A", 2, foo=ALL),
    own("A", 2, foo=[0, 1]),
    join("B", "foo"),
    DESCRIBED,
)
script(
    "lost responses",
    "with a new epoch",
    *TWO[:4],
    own("A", 2, foo=[0, 1]),
    own("A", 2, foo=[0, 1]),
    own("A", 3, foo=[0, 1]),
    own("B", 3),
    own("B", 3),
    own("B", 2, foo=[2]),
    DESCRIBED,
)
script(
    "lost responses",
    "with what must be given up",
    *TWO[:3],
    own("A", 2, foo=ALL),
    beat("A", 2),
    beat("A", 2, timeout=REBALANCE_MS, topics=["foo"], owned={"foo": ALL}),
    own("A", 1, foo=[0]),
    own("A", 2, foo=[0, 1]),
    DESCRIBED,
)
script(
    "lost responses",
    "of two epochs",
    *TWO,
    join("C", "foo"),
    own("A", 3, foo=[0, 1]),
    own("B", 3, foo=[2, 3]),
    own("B", 3, foo=[3]),
    own("B", 3, foo=[2]),
    own("A", 3, foo=[0, 1]),
    own("A", 2, foo=[0, 1]),
    DESCRIBED,
)
script(
    "lost responses",
    "to a farewell",
    join("A", "foo", instance="i"),
    join("B", "foo"),
    beat("B", -1),
    beat("B", -1),
    beat("A", -2, instance="i"),
    beat("A", -2, instance="i"),
    beat("A", -1, instance="i"),
    beat("A", -1, instance="i"),
    DESCRIBED,
)
script(
    "fences",
    "heartbeats late and in a wrong order",
    *TWO,
    own("A", 2, foo=ALL),
    own("B", 2),
    join("A", "foo", "bar"),
    own("A", 3, foo=[0, 1]),
    own("A", 2, foo=[0, 1]),
    own("A", 4, foo=[0, 1], bar=[0, 1]),
    DESCRIBED,
)

# --- static members -------------------------------------------------------------------------------------------------

STATIC = [join("A", "foo", instance="i"), join("B", "foo", instance="j"), own("A", 2, foo=ALL), own("A", 2, foo=[0, 1])]

script(
    "statics",
    "a static member leaves for a while",
    *STATIC,
    beat("B", 3, instance="j"),
    beat("A", -2, instance="i"),
    DESCRIBED,
    beat("B", 3, instance="j"),
    join("C", "foo", instance="i"),
    beat("A", 3, instance="i"),
    beat("A", -1, instance="i"),
    join("A", "foo", instance="i"),
    DESCRIBED,
)
script(
    "statics",
    "a static member comes back with its own id",
    *STATIC,
    beat("A", -2, instance="i"),
    join("A", "foo", instance="i"),
    DESCRIBED,
)
script(
    "statics",
    "a static member comes back with other topics",
    *STATIC,
    beat("A", -2, instance="i"),
    join("C", "foo", "bar", instance="i"),
    beat("B", 3, instance="j"),
    DESCRIBED,
)
script(
    "statics",
    "others join while a static member is away",
    *STATIC,
    beat("A", -2, instance="i"),
    join("C", "foo"),
    beat("B", 3, instance="j"),
    DESCRIBED,
    join("D", "foo", instance="i"),
    own("D", 4, foo=[0, 1]),
    own("D", 4, foo=[0]),
    beat("B", 4, instance="j", owned={"foo": [2]}),
    beat("C", 4),
    DESCRIBED,
)
script(
    "statics",
    "a static member stays away",
    *STATIC,
    beat("A", -2, instance="i"),
    wait(),
    beat("B", 3, instance="j"),
    wait(),
    beat("B", 3, instance="j"),
    wait(),
    DESCRIBED,
    beat("B", 3, instance="j"),
    join("C", "foo", instance="i"),
    DESCRIBED,
    settings=SHORT_SESSION,
)
script(
    "statics",
    "rivals for an instance",
    *STATIC,
    join("C", "foo", instance="i"),
    join("A", "foo", instance="i"),
    beat("C", 3, instance="i"),
    beat("C", -1, instance="i"),
    beat("C", -2, instance="i"),
    beat("A", 3, instance="j"),
    beat("A", 3, instance="k"),
    beat("A", 3),
    DESCRIBED,
)
script(
    "statics",
    "a static member that is away speaks",
    *STATIC,
    beat("A", -2, instance="i"),
    beat("A", 3, instance="i"),
    beat("A", 2, instance="i", owned={"foo": [0, 1]}),
    beat("A", -2, instance="i"),
    DESCRIBED,
    beat("A", -1, instance="i"),
    DESCRIBED,
)
script(
    "statics",
    "a static member goes while it must give up something",
    *STATIC[:3],
    beat("A", -2, instance="i"),
    beat("B", 3, instance="j"),
    DESCRIBED,
    join("C", "foo", instance="i"),
    beat("B", 3, instance="j"),
    DESCRIBED,
)
script(
    "statics",
    "a dynamic member becomes a static one",
    join("A", "foo"),
    beat("A", 2, instance="i"),
    join("A", "foo", instance="i"),
    DESCRIBED,
    join("B", "foo", instance="i"),
    beat("A", -2, instance="i"),
    join("B", "foo", instance="i"),
    DESCRIBED,
)

# --- expressions, racks, topics -------------------------------------------------------------------------------------

script(
    "regexes",
    "expressions that are none",
    join("A", regex="("),
    join("A", regex="{}(?=f)"),
    join("A", regex=r"{}(f)\1"),
    join("A", regex="{}f{1001}"),
    join("A", regex="*"),
    join("A", topics=None, regex=""),
    DESCRIBED,
    beat("A", 2, regex="["),
    DESCRIBED,
)
script(
    "regexes",
    "an expression and names",
    join("A", "bar", regex="{}f.*"),
    RESOLVED,
    beat("A", 2),
    DESCRIBED,
    beat("A", 3, regex=""),
    DESCRIBED,
    beat("A", 3, owned={"bar": [0, 1]}, topics=[]),
    beat("A", 4, owned={}),
    DESCRIBED,
)
script(
    "regexes",
    "an expression matches whole names",
    join("A", topics=None, regex="{}fo"),
    RESOLVED,
    beat("A", 1),
    beat("A", 1, regex="{}fo|x"),
    RESOLVED,
    beat("A", 1, regex="{}(?i)FOO"),
    RESOLVED,
    beat("A", 1),
    DESCRIBED,
)
script(
    "regexes",
    "topics that come after an expression",
    join("A", topics=None, regex="{}.*"),
    RESOLVED,
    beat("A", 1),
    partitions("new", 3),
    beat("A", 2),
    DESCRIBED,
    wait(REGEX_PAUSE_MS),
    beat("A", 2),
    RESOLVED,
    beat("A", 2),
    DESCRIBED,
)
script(
    "regexes",
    "topics of an expression go and come back",
    join("A", topics=None, regex="{}.*"),
    RESOLVED,
    beat("A", 1),
    deleted("bar"),
    beat("A", 2),
    own("A", 2, foo=ALL),
    DESCRIBED,
    partitions("bar", 3),
    wait(REGEX_PAUSE_MS),
    own("A", 3, foo=ALL),
    RESOLVED,
    own("A", 4, foo=ALL, bar=[0, 1, 2]),
    DESCRIBED,
)
script(
    "regexes",
    "members that share an expression",
    join("A", topics=None, regex="{}f.*"),
    RESOLVED,
    beat("A", 1),
    join("B", topics=None, regex="{}f.*"),
    RESOLVED,
    own("A", 2, foo=[0, 1]),
    beat("B", 3),
    beat("B", 3, regex="{}b.*"),
    RESOLVED,
    beat("B", 3, owned={}),
    beat("A", 3),
    beat("A", -1),
    beat("B", 5),
    DESCRIBED,
)
script(
    "regexes",
    "a static member with an expression leaves for a while",
    join("A", topics=None, regex="{}f.*", instance="i"),
    RESOLVED,
    beat("A", 1, instance="i"),
    beat("A", -2, instance="i"),
    join("B", topics=None, regex="{}f.*", instance="i"),
    RESOLVED,
    DESCRIBED,
)
script(
    "racks",
    "members in racks",
    join("A", "foo", rack="r"),
    join("B", "foo", rack="s"),
    own("A", 2, foo=[0, 1]),
    beat("A", 3, rack="t"),
    beat("A", 3, rack=""),
    beat("B", 3, rack="r"),
    beat("B", 3, timeout=5000),
    DESCRIBED,
)
script(
    "racks",
    "a static member moves to another rack",
    join("A", "foo", rack="r", instance="i"),
    beat("A", -2, instance="i"),
    join("B", "foo", rack="s", instance="i"),
    DESCRIBED,
)
script(
    "topics",
    "partitions are added",
    *TWO,
    partitions("foo", 6),
    beat("A", 3),
    DESCRIBED,
    beat("B", 3, owned={"foo": [2]}),
    beat("B", 3, owned={}),
    beat("A", 4),
    beat("B", 4),
    DESCRIBED,
)
script(
    "topics",
    "a topic is deleted",
    join("A", "foo", "bar"),
    deleted("bar"),
    beat("A", 2),
    DESCRIBED,
    own("A", 2, foo=ALL, bar=[0, 1]),
    own("A", 2, foo=ALL),
    DESCRIBED,
    deleted("foo"),
    own("A", 3, foo=ALL),
    own("A", 3),
    DESCRIBED,
)
script(
    "topics",
    "a topic is deleted and created again between two heartbeats",
    join("A", "foo"),
    join("B", "foo"),
    deleted("foo"),
    partitions("foo", 4),
    beat("A", 2),
    own("A", 2),
    beat("B", 3),
    DESCRIBED,
    beat("A", 4),
    beat("B", 4),
    DESCRIBED,
)
script(
    "topics",
    "a topic is created that somebody has waited for",
    join("A", "new", "foo"),
    partitions("new", 2),
    beat("A", 2),
    own("A", 3, foo=ALL, new=[0, 1]),
    DESCRIBED,
)
script(
    "topics",
    "a topic that nobody has subscribed to",
    join("A", "foo"),
    partitions("new", 2),
    partitions("bar", 5),
    deleted("bar"),
    beat("A", 2),
    DESCRIBED,
)
script(
    "topics",
    "a member changes its topics",
    join("A", "foo", "bar"),
    beat("A", 2, topics=["bar"]),
    own("A", 2, foo=ALL, bar=[0, 1]),
    own("A", 2, bar=[0, 1]),
    beat("A", 3, topics=["foo", "foo"], owned={"bar": [0, 1]}),
    own("A", 3),
    beat("A", 4, topics=[], owned={"foo": ALL}),
    own("A", 4),
    DESCRIBED,
)

# --- offsets --------------------------------------------------------------------------------------------------------

script(
    "offsets",
    "who may commit and fetch",
    *TWO,
    commit("A", 3, foo={"0": 1}),
    commit("A", 4, foo={"0": 2}),
    commit("A", 2, foo={"0": 3}),
    commit("A", 2, foo={"0": 4, "3": 4}),
    commit("B", 2, foo={"2": 5}),
    commit("A", 1, foo={"0": 6}),
    commit("C", 3, foo={"0": 7}),
    commit("", -1, foo={"0": 8}),
    commit("A", 3, 8, foo={"0": 9}),
    commit("A", 3, 2, foo={"0": 9}),
    commit("A", 3, 10, foo={"1": 10}),
    commit("A", 3, 10, none={"1": 10}),
    fetch("A", 3),
    fetch("A", 2),
    fetch("A", 4),
    fetch("C", 3),
    fetch("", -1),
    fetch(None, -1),
)
script(
    "offsets",
    "commits of a group without members, and of none",
    commit("A", 3, foo={"0": 1}),
    commit("A", 3, 8, foo={"0": 1}),
    fetch("A", 3),
    join("A", "foo"),
    beat("A", -1),
    commit("", -1, foo={"0": 2}),
    commit("A", 2, foo={"0": 3}),
    fetch("A", 2),
    fetch(None, -1),
    DESCRIBED,
)
script(
    "offsets",
    "commits of a static member that is away",
    *STATIC,
    commit("A", 3, foo={"0": 1}),
    beat("A", -2, instance="i"),
    commit("A", 3, foo={"0": 2}),
    commit("A", -2, foo={"0": 3}),
    fetch("A", 3),
    join("C", "foo", instance="i"),
    commit("C", 3, foo={"0": 4}),
    commit("A", 3, foo={"0": 5}),
    fetch("C", 3),
)

# --- migrations -----------------------------------------------------------------------------------------------------

CLASSIC = [enter("", "foo", instance="i"), sync("$0", 1, {"$0": {"foo": ALL}}, instance="i")]
"""A classic group of one static member."""
UPGRADED = [*CLASSIC, join("A", "foo")]
REJOINED = [
    stay("$0", 1, instance="i"),
    enter("$0", "foo", instance="i", owned={"foo": ALL}),
    sync("$0", 1, instance="i"),
    enter("$0", "foo", instance="i", owned={"foo": [0, 1]}),
    sync("$0", 2, instance="i"),
    beat("A", 2),
]

script(
    "migrations",
    "a classic group becomes a consumer group, and goes back",
    *UPGRADED,
    DESCRIBED,
    *REJOINED,
    DESCRIBED,
    stay("$0", 2, instance="i"),
    beat("A", -1),
    DESCRIBED,
    stay("$0", 2, instance="i"),
    enter("$0", "foo", instance="i"),
    DESCRIBED,
)
script(
    "migrations",
    "a classic member that is told to join",
    enter("", "foo"),
    enter("$0", "foo"),
    sync("$0", 1, {"$0": {"foo": ALL}}),
    stay("$0", 1),
    join("A", "foo"),
    stay("$0", 1),
    stay("$0", 2),
    sync("$0", 2),
    enter("$0", "foo", owned={"foo": ALL}),
    stay("$0", 1),
    leave(("$0", None)),
    beat("A", 2),
    DESCRIBED,
)
script(
    "migrations",
    "a classic member speaks the new protocol",
    *UPGRADED,
    beat("$0", 1, instance="i"),
    join("$0", "foo", instance="i"),
    stay("$0", 1, instance="i"),
    enter("$0", "foo", instance="i"),
    DESCRIBED,
)
script(
    "migrations",
    "a static member changes its protocol",
    *CLASSIC,
    join("A", "foo", instance="i"),
    DESCRIBED,
    stay("$0", 1, instance="i"),
    own("A", 2, foo=ALL),
    enter("", "foo", instance="i"),
    DESCRIBED,
)
script(
    "migrations",
    "an empty classic group",
    *CLASSIC,
    leave(("$0", None)),
    DESCRIBED,
    beat("A", 2),
    join("A", "foo"),
    DESCRIBED,
)
script(
    "migrations",
    "an empty consumer group",
    join("A", "foo"),
    beat("A", -1),
    enter("A", "foo"),
    enter("", "foo", instance="i"),
    DESCRIBED,
    beat("A", 2),
)
script(
    "migrations",
    "a group of another protocol",
    enter("", "foo", instance="i", type="connect"),
    DESCRIBED,
    join("A", "foo"),
    beat("A", 3),
    beat("A", -1),
    DESCRIBED,
)
script(
    "migrations",
    "classic members of other protocols come to a consumer group",
    join("A", "foo"),
    enter("", "foo", type="connect"),
    enter("", "bar", version=3),
    enter("", "foo", session=1),
    enter("", "foo", instance="i", protocols=["sticky"]),
    enter("", "foo", instance="j", protocols=["range"]),
    enter("", "foo", instance="k", protocols=["mine", "range"]),
    enter("nobody", "bar"),
    enter("$6", "foo", instance="l"),
    beat("A", 2),
)
script(
    "migrations",
    "a classic member that is silent",
    enter("", "foo", instance="i", session=SESSION_MS),
    sync("$0", 1, {"$0": {"foo": ALL}}, instance="i"),
    join("A", "foo"),
    wait(),
    beat("A", 2),
    wait(),
    beat("A", 2),
    wait(),
    beat("A", 2),
    DESCRIBED,
    stay("$0", 1, instance="i"),
)
script(
    "migrations",
    "a classic member that does not join again in time",
    enter("", "foo", instance="i", timeout=SHORT_MS),
    sync("$0", 1, {"$0": {"foo": ALL}}, instance="i"),
    join("A", "foo"),
    stay("$0", 1, instance="i"),
    wait(),
    stay("$0", 1, instance="i"),
    wait(),
    beat("A", 2),
    stay("$0", 1, instance="i"),
    DESCRIBED,
)
script(
    "migrations",
    "a classic member that does not ask for its assignment in time",
    join("A", "foo"),
    enter("", "foo", instance="i", timeout=SHORT_MS),
    wait(),
    stay("$1", 3, instance="i"),
    DESCRIBED,
    wait(),
    stay("$1", 3, instance="i"),
    DESCRIBED,
)
script(
    "migrations",
    "the last member of the new protocol is fenced",
    *UPGRADED,
    *REJOINED,
    wait(),
    stay("$0", 2, instance="i"),
    wait(),
    stay("$0", 2, instance="i"),
    wait(),
    DESCRIBED,
    stay("$0", 2, instance="i"),
    settings=SHORT_SESSION,
)
script(
    "migrations",
    "a static member of the new protocol is away amid classic ones",
    *CLASSIC,
    join("A", "foo", instance="j"),
    beat("A", -2, instance="j"),
    DESCRIBED,
    stay("$0", 1, instance="i"),
    beat("A", -1, instance="j"),
    DESCRIBED,
)
script(
    "migrations",
    "commits of classic members",
    *UPGRADED,
    commit("$0", 1, 8, foo={"0": 1}),
    commit("$0", 2, 8, foo={"0": 2}),
    commit("$0", 0, 8, foo={"0": 2}),
    commit("$0", 1, 9, foo={"0": 3}),
    commit("A", 2, 9, foo={"0": 4}),
    fetch("$0", 1),
    fetch("$0", 2),
    fetch("A", 2),
)
script(
    "migrations",
    "a group whose members are all classic gets topics",
    *UPGRADED,
    *REJOINED,
    partitions("foo", 6),
    stay("$0", 2, instance="i"),
    beat("A", 2),
    stay("$0", 2, instance="i"),
    beat("A", -1),
    DESCRIBED,
)
for policy in ("disabled", "upgrade", "downgrade"):
    script("migrations", f"a member of the new protocol comes: {policy}", *UPGRADED, DESCRIBED, policy=policy)
    script(
        "migrations",
        f"a classic member comes and the other one goes: {policy}",
        join("A", "foo"),
        enter("", "foo", instance="i"),
        sync("$1", 3, instance="i"),
        DESCRIBED,
        beat("A", -1),
        DESCRIBED,
        stay("$1", 3, instance="i"),
        policy=policy,
    )
    script(
        "migrations",
        f"a group without members changes its kind: {policy}",
        join("A", "foo"),
        beat("A", -1),
        enter("", "foo", instance="i"),
        leave(("$2", None)),
        join("A", "foo"),
        DESCRIBED,
        policy=policy,
    )
