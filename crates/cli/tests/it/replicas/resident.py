# Tells how many pages of files the kernel has, and how many they have: resident.py FILE... It
# reads nothing of them.

import ctypes
import mmap
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def resident(path):
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    there = ctypes.create_string_buffer(pages)
    if libc.mincore(at, size, there) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    os.close(fd)
    return sum(byte & 1 for byte in there.raw), pages


print(*map(sum, zip(*map(resident, sys.argv[1:]))))
