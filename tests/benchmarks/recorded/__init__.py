"""Cases whose results are recorded before a redesign, and compared after it."""

import os

# The panels' progress bars would fill the terminal; tqdm reads this when it is imported.
os.environ.setdefault("TQDM_DISABLE", "1")
