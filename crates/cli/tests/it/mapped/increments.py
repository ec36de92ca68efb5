"""Adds one to a number in a shared mapping, again and again, with its bytes locked.

increments.py FILE TIMES [msync]
"""
import fcntl
import mmap
import os
import struct
import sys

path, times, flushes = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
fd = os.open(path, os.O_RDWR)
mapping = mmap.mmap(fd, mmap.PAGESIZE, flags=mmap.MAP_SHARED)
for _ in range(times):
    fcntl.lockf(fd, fcntl.LOCK_EX, 8, 0)
    (number,) = struct.unpack_from("<Q", mapping, 0)
    struct.pack_into("<Q", mapping, 0, number + 1)
    if flushes:
        mapping.flush()
    fcntl.lockf(fd, fcntl.LOCK_UN, 8, 0)
