"""One schema registry for all tests of a worker, and a front before it that can fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import BrokerThread
from tests.pipeline.registry.apicurio import running_apicurio
from tests.pipeline.registry.registry_front import RegistryFront


@pytest.fixture(scope="session")
def schema_registry(apicurio: Path, broker: BrokerThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a registry. Each test uses its own subjects."""
    with running_apicurio(apicurio, broker.bootstrap, tmp_path_factory.mktemp("registry")) as url:
        yield url


@pytest.fixture
def front(schema_registry: str) -> Iterator[RegistryFront]:
    """A server that passes the registry's answers on, until a test says otherwise."""
    with RegistryFront(schema_registry) as running:
        yield running
