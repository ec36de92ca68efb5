"""Stores through a shared mapping, then makes one call about the same file, and again.

calls.py DIR ROUNDS alone|shared: says each call before it begins, and "done" at its end. After each
call the file must have the bytes that one machine alone would see; where another machine works with
the file too, only that the call returns is judged.
"""
import ctypes
import mmap
import os
import sys

PAGE = 4096
PAGES = 8
SIZE = PAGE * PAGES
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, offset, length):
    args = (fd, mode, ctypes.c_long(offset), ctypes.c_long(length))
    if libc.fallocate(*args) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class File:
    def __init__(self, directory, alone):
        self.path = os.path.join(directory, "file")
        self.other = os.path.join(directory, "other")
        self.alone = alone
        self.fd = os.open(self.path, os.O_RDWR)
        self.model = bytearray()
        self.mapping = None
        with open(self.other, "wb") as other:
            other.write(b"o" * SIZE)
        self.source = os.open(self.other, os.O_RDONLY)

    def map(self):
        return mmap.mmap(self.fd, SIZE, flags=mmap.MAP_SHARED)

    def cut(self, size):
        """Changes the model as for a file that gets this size."""
        self.model = self.model[:size] + bytes(max(0, size - len(self.model)))

    def put(self, at, data):
        self.model[at : at + len(data)] = data


def truncate(size, through):
    def call(file):
        if through == "fd":
            os.ftruncate(file.fd, size)
        else:
            os.truncate(file.path, size)
        file.cut(size)

    return call


def reopen(file):
    os.close(os.open(file.path, os.O_WRONLY | os.O_TRUNC))
    file.cut(0)


def punch(mode):
    def call(file):
        fallocate(file.fd, mode, 100, 2 * PAGE)
        file.put(100, bytes(2 * PAGE))

    return call


def lengthen(file):
    fallocate(file.fd, 0, SIZE, PAGE)
    file.cut(SIZE + PAGE)


def copy(file):
    done = os.copy_file_range(file.source, file.fd, 2 * PAGE, 0, PAGE + 7)
    file.put(PAGE + 7, b"o" * done)


def copy_out(file):
    target = os.open(file.other + "-copy", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    done = os.copy_file_range(file.fd, target, SIZE, 0, 0)
    copied = os.pread(target, done, 0)
    assert not file.alone or copied == bytes(file.model[:done]), "the copy has other bytes"
    os.close(target)


def write(file):
    os.pwrite(file.fd, b"w" * 5000, 1000)
    file.put(1000, b"w" * 5000)


def append(file):
    fd = os.open(file.path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"a" * 100)
    os.close(fd)
    file.put(len(file.model), b"a" * 100)


def rename_over(file):
    name = file.path + "-next"
    with open(name, "wb") as following:
        following.write(bytes(file.model))
    os.rename(name, file.path)
    os.close(file.fd)
    file.fd = os.open(file.path, os.O_RDWR)


def unlink(file):
    os.unlink(file.path)
    os.close(file.fd)
    file.fd = os.open(file.path, os.O_RDWR | os.O_CREAT, 0o644)
    file.model = bytearray()


def attribute(file):
    os.setxattr(file.path, "user.a", b"value")


def twice(file):
    os.ftruncate(file.fd, PAGE + 10)
    file.cut(PAGE + 10)
    os.ftruncate(file.fd, SIZE)
    file.cut(SIZE)


def in_a_child(file):
    """Another program stores, and ends with what it stored not written back."""
    child = os.fork()
    if child == 0:
        file.mapping[0:1] = b"c"
        os._exit(0)
    os.ftruncate(file.fd, 3 * PAGE)
    file.cut(3 * PAGE)
    os.waitpid(child, 0)
    # Which came first is not known.
    file.model[0:1] = os.pread(file.fd, 1, 0)


CALLS = {
    "ftruncate-shorter": truncate(2 * PAGE + 5, "fd"),
    "ftruncate-same": truncate(SIZE, "fd"),
    "ftruncate-longer": truncate(SIZE + 2 * PAGE, "fd"),
    "ftruncate-empty": truncate(0, "fd"),
    "ftruncate-twice": twice,
    "truncate": truncate(PAGE, "path"),
    "open-truncates": reopen,
    "punch": punch(PUNCH_HOLE | KEEP_SIZE),
    "zero": punch(ZERO_RANGE),
    "lengthen": lengthen,
    "copy-into": copy,
    "copy-out-of": copy_out,
    "write": write,
    "append": append,
    "chmod": lambda file: os.fchmod(file.fd, 0o600),
    "chown": lambda file: os.fchown(file.fd, 1, 1),
    "utime": lambda file: os.utime(file.fd, (5, 5)),
    "setxattr": attribute,
    "fsync": lambda file: os.fsync(file.fd),
    "rename-over": rename_over,
    "unlink": unlink,
    "exit": in_a_child,
}


def one_round(file, call, number):
    os.ftruncate(file.fd, 0)
    os.pwrite(file.fd, b"-" * SIZE, 0)
    file.model = bytearray(b"-" * SIZE)
    mapping = file.mapping = file.map()
    for page in range(PAGES):
        at, byte = page * PAGE + number % PAGE, bytes([65 + (number + page) % 26])
        mapping[at : at + 1] = byte
        file.put(at, byte)
    CALLS[call](file)
    if file.alone:
        seen = os.pread(file.fd, SIZE * 2, 0)
        if seen != bytes(file.model):
            at = next((i for i, (a, b) in enumerate(zip(seen, file.model)) if a != b), None)
            text = f"{len(seen)} of {len(file.model)} bytes, differ at {at}"
            sys.exit(f"{call}, round {number}: {text}")
    mapping.close()


def main():
    directory, rounds, alone = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "alone"
    file = File(directory, alone)
    for call in CALLS:
        print(call, flush=True)
        for number in range(rounds):
            one_round(file, call, number)
    print("done", flush=True)


main()
