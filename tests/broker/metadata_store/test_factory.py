"""Which metadata store a broker gets for its settings."""

from __future__ import annotations

from odradek.broker.background.background import Background
from odradek.broker.metadata_store.factory import metadata_store_of
from odradek.broker.settings.config import BrokerConfig
from tests.memory_files import ForgetfulFiles


async def test_a_broker_keeps_its_metadata_in_its_first_log_directory_for_itself() -> None:
    files, background = ForgetfulFiles(), Background()
    config = BrokerConfig.single_node({"log.dirs": "/first,/second"})
    for directory in config.log_dirs:
        files.make_directories(directory)
    store = metadata_store_of(config, files, background)
    assert not store.is_shared
    await store.open()
    await store.close()
    await background.stop()
    assert files.list_directory("/first")
    assert not files.list_directory("/second")
