"""The other machine: does the same to a file again and again until its input ends.

other.py FILE HOW
"""
import mmap
import os
import select
import sys

PAGE = 4096
SIZE = 8 * PAGE


def read(path):
    with open(path, "rb") as file:
        file.read()


def write(path):
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"x", PAGE + 1)
    os.close(fd)


def store(path, and_truncate=False):
    """In a child: the file may be shorter by the time of the store, which ends it."""
    child = os.fork()
    if child == 0:
        fd = os.open(path, os.O_RDWR)
        try:
            mapping = mmap.mmap(fd, PAGE, flags=mmap.MAP_SHARED)
        except ValueError:
            os._exit(0)  # it is shorter than a page now
        mapping[7:8] = b"s"
        if and_truncate:
            os.ftruncate(fd, SIZE)
        os._exit(0)
    os.waitpid(child, 0)


def truncate(path):
    os.truncate(path, SIZE)


def store_and_truncate(path):
    store(path, True)


HOW = {
    "reads": read,
    "stats": os.stat,
    "writes": write,
    "stores": store,
    "truncates": truncate,
    "stores-and-truncates": store_and_truncate,
}


def main():
    path, how = sys.argv[1], HOW[sys.argv[2]]
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            how(path)
        except FileNotFoundError:
            pass  # it is being replaced
    print("done", flush=True)


main()
