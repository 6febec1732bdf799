"""What is not there is an error that says where it is: a name of the other kind of broker, of the object inside, or one
that is spelt almost so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.testing.faults.names import nearest

OTHER_KIND = {
    "BrokerThread": "ClusterThread",
    "ClusterThread": "BrokerThread",
    "Cluster": "InProcessBroker",
    "InProcessBroker": "Cluster",
}
INSIDE = {"BrokerThread": ("broker", "InProcessBroker"), "ClusterThread": ("cluster", "Cluster")}
"""What lives in a thread: the name of its attribute, and its class."""


_KINDS: dict[str, type] = {}
"""The classes above by name, from their definition on."""


class NamesTheRightCall:
    """Of the classes above."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__name__ in OTHER_KIND:
            _KINDS[cls.__name__] = cls

    if not TYPE_CHECKING:  # a checker would take every name for one that is there

        def __getattr__(self, name: str) -> object:
            raise AttributeError(f"{_kind_of(self)} has no {name}{_where(self, name)}")


def _kind_of(thing: object) -> str:
    return next(each.__name__ for each in type(thing).__mro__ if each.__name__ in OTHER_KIND)


def _where(thing: object, name: str) -> str:
    """Returns the end of the message."""
    if name.startswith("_"):
        return ""
    kind = _kind_of(thing)
    other = OTHER_KIND[kind]
    if _has(other, name):
        return f"; {other} has it"
    attribute, inside = INSIDE.get(kind, ("", ""))
    if inside and _has(inside, name):
        return f"; its .{attribute} has it, whose methods run with .{_runs(kind)}(...)"
    return nearest(name, [each for each in dir(type(thing)) if not each.startswith("_")])


def _has(kind_name: str, name: str) -> bool:
    kind = _KINDS.get(kind_name, object)
    return hasattr(kind, name) or any(name in vars(each).get("__annotations__", {}) for each in kind.__mro__)


def _runs(kind: str) -> str:
    return "call" if kind == "BrokerThread" else "run"
