"""Tables by their address, wherever they are: a folder, or a catalog of the user's own Spark."""

from typing import TYPE_CHECKING

from omnirelay.pipeline.catalog import CatalogTables, catalog_of
from omnirelay.pipeline.datasets import Tables
from omnirelay.pipeline.delta import DeltaTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_tables(session: "SparkSession", address: str) -> Tables:
    """Raises InvalidOption for a catalog that is not named well."""
    catalog = catalog_of(address)
    return DeltaTables(session, address) if catalog is None else CatalogTables(session, *catalog)
