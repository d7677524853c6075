"""MLflow as a live view of the records on disk.

A training appends each epoch to its journal and goes on. One process per Snakemake run follows
the journals and records of all cells and brings MLflow in line with them (`follow_run`); `track`
does the same once. So a store that was locked, slow, full or gone is complete after `track`, and
an empty one is rebuilt.

Importing this package does not import mlflow, which takes seconds.
"""

from tnfdt.tracking.address import mask_uri, resolve_uri
from tnfdt.tracking.follow import follow_run, track
from tnfdt.tracking.sqlite_store import init_store, ui

__all__ = ["follow_run", "init_store", "mask_uri", "resolve_uri", "track", "ui"]
