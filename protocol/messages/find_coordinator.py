"""FindCoordinator (key 10): the coordinator of a group or transactional id."""

from __future__ import annotations

from odradek.protocol.schema import Message, array, between, int8, int16, int32, message, since, string, until


@message(api_key=10, kind="request", versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Message):
    """Group ids (key type 0) or transactional ids (1); from v4 more than one."""

    key: str = string(versions=until(3))
    key_type: int = int8(versions=since(1))
    coordinator_keys: list[str] = array(string, versions=since(4))  # KIP-699


@message(api_key=10, kind="response", versions=(0, 6), flexible=3)
class FindCoordinatorResponse(Message):
    """The coordinator for each key."""

    class Coordinator(Message):
        key: str = string(versions=since(4))  # KIP-699
        node_id: int = int32(versions=since(4))  # KIP-699
        host: str = string(versions=since(4))  # KIP-699
        port: int = int32(versions=since(4))  # KIP-699
        error_code: int = int16(versions=since(4))  # KIP-699
        error_message: str | None = string(versions=since(4), nullable=since(4))  # KIP-699

    throttle_time_ms: int = int32(versions=since(1))
    error_code: int = int16(versions=until(3))
    error_message: str | None = string(versions=between(1, 3), nullable=between(1, 3))
    node_id: int = int32(versions=until(3))
    host: str = string(versions=until(3))
    port: int = int32(versions=until(3))
    coordinators: list[Coordinator] = array(versions=since(4))  # KIP-699
