"""Rules with masks and priorities over flows of 64-bit words; looked up without locks while they change."""

from wirespeed.tables.classifier.entry import FOREVER, Entry
from wirespeed.tables.classifier.search import lookup
from wirespeed.tables.classifier.table import Classifier

__all__ = ["FOREVER", "Classifier", "Entry", "lookup"]
