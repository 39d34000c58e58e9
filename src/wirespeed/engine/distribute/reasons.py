"""Why a distributing stage drops packets, or counts those that others dropped."""

from wirespeed.core.stage import FIRST_REASON

DROPS = {
    "said_drop": "The function that chooses the tag said DROP",
    "dropped_by_worker": "A worker's function dropped it; the rows of the crew's stages say why",
    "stopped": "The run was stopped while it was on its way through the workers",
}
SAID_DROP, BY_WORKER, STOPPED = range(FIRST_REASON, FIRST_REASON + len(DROPS))
