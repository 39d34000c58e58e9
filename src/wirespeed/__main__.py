"""``python -m wirespeed``: the command line, for where the script ``wirespeed`` is not on the path."""

import sys

from wirespeed.cli import main

if __name__ == "__main__":
    sys.exit(main())
