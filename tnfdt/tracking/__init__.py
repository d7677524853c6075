"""MLflow as a live view of the records on disk.

A training appends each epoch to a journal beside its record and goes on; a low-priority child
process carries the journal to MLflow. The child, `log_attack` and `track` all do the same
thing: they read what is on disk and bring the cell's one run in line with it. So a store that
was locked, slow, full or gone is complete after `track`, and an empty one is rebuilt.

Importing this package does not import mlflow, which takes seconds.
"""

from tnfdt.tracking.address import mask_uri, resolve_uri
from tnfdt.tracking.catalogue import recorded_run_ids, run_ids, track
from tnfdt.tracking.embedded import init_store, ui
from tnfdt.tracking.live import AttackTracker, CellTracker, log_attack

__all__ = [
    "AttackTracker",
    "CellTracker",
    "init_store",
    "log_attack",
    "mask_uri",
    "recorded_run_ids",
    "resolve_uri",
    "run_ids",
    "track",
    "ui",
]
