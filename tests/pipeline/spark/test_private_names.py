"""What of PySpark is private to it and used all the same, by name: a PySpark that lacks one fails here."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext, java_gateway
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import odradek.pipeline
import pyspark_odradek

SOURCES = [Path(package.__path__[0]) for package in (odradek.pipeline, pyspark_odradek)]
OF_THE_CLASS = {
    "_ensure_initialized": "starts the Java process before there are options that a command line would show",
    "_gateway": "whether this process has started Java",
    "_active_spark_context": "whether this process has a context",
}
OF_THE_CONTEXT = {
    "_jvm": "Java's class loaders and system properties",
    "_jsc": "adds a jar to the executors",
}
OF_AN_ERROR = {"_origin": "the Java error, whose causes say more"}
OF_A_FRAME = {"_jdf": "whether an expression of the settings is of one row, and is deterministic"}
OF_NAMED_TUPLES = {"_replace"}
MODULES = {
    "pyspark",
    "pyspark.errors",
    "pyspark.sql",
    "pyspark.sql.avro.functions",
    "pyspark.sql.datasource",
    "pyspark.sql.functions",
    "pyspark.sql.types",
    "pyspark.sql.window",
}
"""Those of PySpark's documentation."""


def _nodes() -> Iterator[ast.AST]:
    for directory in SOURCES:
        for path in directory.rglob("*.py"):
            yield from ast.walk(ast.parse(path.read_text()))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _private_names_used() -> set[str]:
    """Private names of other objects than `self`, and those that getattr() asks for, but for our own."""
    used: set[str] = set()
    ours: set[str] = set()
    for node in _nodes():
        match node:
            case ast.Attribute(value=ast.Name("self" | "cls"), attr=name):
                ours.add(name)
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), *_]):
                used.add(name)
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(name)):
                ours.add(name)
    return {name for name in used - ours - OF_NAMED_TUPLES if _is_private(name)}


def test_no_other_private_name_is_used() -> None:
    assert _private_names_used() == {*OF_THE_CLASS, *OF_THE_CONTEXT, *OF_AN_ERROR, *OF_A_FRAME}


def test_no_module_is_imported_that_is_not_documented() -> None:
    found = {node.module for node in _nodes() if isinstance(node, ast.ImportFrom) and node.module}
    found |= {one.name for node in _nodes() if isinstance(node, ast.Import) for one in node.names}
    assert {name for name in found if name.partition(".")[0] == "pyspark"} <= MODULES


def test_no_private_name_is_imported() -> None:
    imports = (
        node for node in _nodes() if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark")
    )
    assert not [one.name for node in imports for one in node.names if _is_private(one.name)]


@pytest.mark.parametrize("name", OF_THE_CLASS)
def test_the_context_class_has(name: str) -> None:
    assert hasattr(SparkContext, name), f"PySpark {pyspark.__version__}: {OF_THE_CLASS[name]}"


def test_java_is_started_without_arguments() -> None:
    required = inspect.signature(SparkContext._ensure_initialized).parameters.values()
    assert all(one.default is not one.empty for one in required)


@pytest.mark.parametrize("name", OF_THE_CONTEXT)
def test_a_context_has(spark: SparkSession, name: str) -> None:
    assert getattr(spark.sparkContext, name, None) is not None, f"{pyspark.__version__}: {OF_THE_CONTEXT[name]}"


@pytest.mark.parametrize("name", OF_AN_ERROR)
def test_an_error_of_java_has(spark: SparkSession, name: str) -> None:
    with pytest.raises(AnalysisException) as raised:
        spark.sql("SELECT nothing")
    assert getattr(raised.value, name, None) is not None, f"{pyspark.__version__}: {OF_AN_ERROR[name]}"


@pytest.mark.parametrize("name", OF_A_FRAME)
def test_a_frame_has(spark: SparkSession, name: str) -> None:
    plan = getattr(spark.sql("SELECT rand()"), name).queryExecution().analyzed()
    assert (plan.deterministic(), plan.toString().split()[0]) == (False, "Project"), OF_A_FRAME[name]


def test_spark_submit_names_the_port_of_its_java_process_as_before() -> None:
    assert "PYSPARK_GATEWAY_PORT" in inspect.getsource(java_gateway)


def test_spark_submit_has_the_class_loader_to_which_jars_are_added(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Class.forName("org.apache.spark.util.MutableURLClassLoader")
    assert "addURL" in {method.getName() for method in loader.getMethods()}
