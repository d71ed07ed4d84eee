import os

# Children are forked and compute: PyTorch's OpenBLAS on ARM would wait for threads of the parent's there.
os.environ.setdefault("OMP_NUM_THREADS", "1")
