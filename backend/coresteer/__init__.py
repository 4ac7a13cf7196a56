"""The backend."""

import os

# Matrices here are small. With more threads, those of numpy's linear algebra wait for each other by spinning, which on
# a machine that is busy took twenty times as long. It is read once, when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
