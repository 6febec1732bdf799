"""Whether a place has an Iceberg table, for jobs that read any table. pyiceberg is only imported if it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.location import Location

if TYPE_CHECKING:
    from odradek.pipeline.sinks.iceberg.tables import TablePlace

INSTALL = "pip install 'odradek[iceberg]'"


def has_iceberg_metadata(place: Location) -> bool:
    """Whether a place has the metadata of an Iceberg table, in a catalog or not."""
    return any(".metadata.json" in name for name in (place / "metadata").names())


def iceberg_place(place: Location, settings: Settings) -> TablePlace | None:
    """Returns the Iceberg table at a place. None if there is none. Raises PipelineError if it cannot be read."""
    if settings.sink != "iceberg" and not has_iceberg_metadata(place):
        return None
    try:
        from odradek.pipeline.sinks.iceberg.tables import TablePlace
    except ModuleNotFoundError as error:
        raise PipelineError(f"the Iceberg table {place} cannot be read without {error.name}", INSTALL) from error
    found = TablePlace(place, settings.iceberg)
    return None if found.find() is None else found
