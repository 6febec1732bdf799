"""The columns of Iceberg tables. They grow by new ones and by Iceberg's type promotion (widening.py), which rewrites no
file: readers convert the values of older files."""

from __future__ import annotations

import json

from deltalake import Schema as DeltaSchema
from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs, schema_to_pyarrow, visit_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.widening import is_promoted, nullable
from odradek.pipeline.sinks.arrow_types import PLAIN, arrow_schema
from odradek.pipeline.sinks.iceberg.tables import TablePlace


def iceberg_schema(columns: StructType, place: TablePlace) -> Schema:
    """Converts Spark's columns, all nullable, with ids from 1 up. Raises PipelineError for types that Iceberg lacks."""
    strange = [one.name for one in columns if not _known(one.dataType)]
    if strange:
        raise PipelineError(f"the table {place} cannot have {', '.join(strange)}: Iceberg lacks the type", "change it")
    whole = nullable(columns)
    assert isinstance(whole, StructType)
    converted = visit_pyarrow(arrow_schema(whole), _ConvertToIcebergWithoutIDs())
    assert isinstance(converted, Schema)
    return assign_fresh_schema_ids(converted)


def _known(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_known(one.dataType) for one in kind)
    if isinstance(kind, MapType):
        return _known(kind.keyType) and _known(kind.valueType)
    return _known(kind.elementType) if isinstance(kind, ArrayType) else type(kind) in {*PLAIN, DecimalType}


def delta_columns(table: Table) -> DeltaSchema:
    """Returns the table's columns in Delta's types."""
    return DeltaSchema.from_arrow(schema_to_pyarrow(table.schema(), include_field_ids=False))


def columns_of(table: Table) -> StructType:
    """Returns the table's columns in Spark's types, which are named as Delta's."""
    return StructType.fromJson(json.loads(delta_columns(table).to_json()))


def grow(table: Table, columns: StructType, place: TablePlace) -> bool:
    """Adds the columns that the table lacks, null in existing rows, and widens types. Returns whether it had to. Raises
    PipelineError for types that do not hold the values that the table has, and CommitFailedException."""
    wanted = iceberg_schema(columns, place)
    there = {one.name.lower(): one for one in columns_of(table)}
    for one in columns:
        found = there.pop(one.name.lower(), None)
        if found is not None and (found.name != one.name or not is_promoted(one.dataType, found.dataType)):
            raise PipelineError(
                f"the table {place} has {found.name} {type_name(found.dataType)}, but the settings have "
                f"{one.name} {type_name(one.dataType)}",
                "keep the column's type, or set another name",
            )
    required = {one.name.lower(): one.name for one in table.schema().fields if one.required}
    for name in there.keys() & required.keys():
        raise PipelineError(
            f"the table {place} needs {required[name]}, which the settings lack", "add it to the schema"
        )
    before = table.schema()
    with place.changing(table) as transaction:
        with transaction.update_schema() as update:
            update.union_by_name(wanted)
        grown: Schema = transaction.table_metadata.schema()
    return grown.as_struct() != before.as_struct()


def type_name(kind: DataType) -> str:
    """Returns the readable name of a type: long, or JSON if it is nested."""
    return str(json.loads(kind.json()))
