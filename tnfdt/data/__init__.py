"""Datasets: found, verified, prepared once, and fed to training from the device.

`prepare` is stage 1 of the flow; `load` opens its copy in the later stages. Importing this
package loads neither torchvision nor scikit-learn.
"""

from tnfdt.data.augment import ShiftFlip
from tnfdt.data.feed import epoch_batches, steps_per_epoch
from tnfdt.data.prepare import prepare, prepare_for
from tnfdt.data.prepared import ImageSet, load
from tnfdt.data.sources import DATASETS, DatasetSource

__all__ = [
    "DATASETS",
    "DatasetSource",
    "ImageSet",
    "ShiftFlip",
    "epoch_batches",
    "load",
    "prepare",
    "prepare_for",
    "steps_per_epoch",
]
