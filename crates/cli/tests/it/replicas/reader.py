# Reads all of a replica over and over: reader.py DIR STOP OUT. It ends when the file STOP is there,
# and leaves in OUT how many files it has read and which generations it saw, or what was wrong: a
# file or a listing of more than one release, or of an older one than what was seen before; a file
# that was open all the time and has other bytes now.

import errno
import os
import random
import sys

# As the writer makes them.
DIRS, FILES, MARKS = 4, 6, 5
KEPT = 4
root, stop, out = sys.argv[1:4]
seen, opens, generations = 0, 0, set()
held = []


class Wrong(Exception):
    pass


def see(generation, what):
    global seen
    if generation < seen:
        raise Wrong(f"{what} is of generation {generation}, and {seen} was seen before")
    seen = generation
    generations.add(generation)


def whole(fd, path, data):
    """All of an open file, in several pieces; it stays the same file."""
    first = os.fstat(fd)
    while True:
        piece = os.read(fd, random.choice([100, 4096, 70_000, 1 << 20]))
        now = os.fstat(fd)
        for what in ["st_size", "st_mtime_ns", "st_ino", "st_ctime_ns"]:
            if getattr(now, what) != getattr(first, what):
                raise Wrong(f"{path}: {what} changes while it is open")
        if not piece:
            break
        data += piece
    line = bytes(data[:10])
    if len(data) != first.st_size or len(data) == 0:
        raise Wrong(f"{path}: {len(data)} bytes of {first.st_size}")
    if data != line * (len(data) // 10):
        lines = sorted({bytes(data[at : at + 10]) for at in range(0, len(data), 10)})
        raise Wrong(f"{path} is of several releases: {lines[:4]}")
    return int(line[1:9])


def read(path):
    global opens
    fd = os.open(path, os.O_RDONLY)
    opens += 1
    try:
        see(whole(fd, path, bytearray()), path)
    finally:
        os.close(fd)


def listing(path):
    """The generation of the marks of a directory: all five are of one."""
    marks = [name.split(".") for name in os.listdir(path) if name.startswith("mark.")]
    of = {int(mark[1]) for mark in marks}
    if len(of) != 1 or sorted(mark[2] for mark in marks) != [str(n) for n in range(MARKS)]:
        raise Wrong(f"{path} lists {sorted(os.listdir(path))}")
    (generation,) = of
    see(generation, path)
    for mark in range(MARKS):
        try:
            read(os.path.join(path, f"mark.{generation}.{mark}"))
        except FileNotFoundError:
            # Right only where a release came in between.
            newer = listing(path)
            if newer <= generation:
                raise Wrong(f"{path} lists a mark of {generation} which is not there") from None
            return newer
    return generation


def hold(path):
    """Opens a file, and reads only its beginning."""
    fd = os.open(path, os.O_RDONLY)
    begin = os.read(fd, 4000)
    generation = int(begin[1:9])
    see(generation, path)
    held.append((fd, path, generation, begin))


def let_go(at_end):
    """What was open for some releases has the bytes that it had."""
    for one in list(held):
        fd, path, generation, begin = one
        if seen < generation + 2 and not at_end:
            continue
        held.remove(one)
        try:
            if whole(fd, path, bytearray(begin)) != generation:
                raise Wrong(f"{path} was opened at {generation}")
        except OSError as error:
            listing(os.path.dirname(path))
            if error.errno != errno.ESTALE or seen < generation + KEPT:
                raise Wrong(f"{path} of {generation} at {seen}: {error}") from None
        finally:
            os.close(fd)


def once():
    for number in random.sample(range(DIRS), DIRS):
        path = os.path.join(root, f"d{number}")
        listing(path)
        for file in [f"f{file}" for file in range(FILES)] + ["large"]:
            read(os.path.join(path, file))
        if len(held) < 8:
            hold(os.path.join(path, "large"))
        let_go(False)


try:
    while not os.path.exists(stop):
        once()
    once()
    let_go(True)
    told = f"{opens} files, generations {sorted(generations)}"
except Exception as error:
    told = f"wrong: {error!r}"
with open(out, "w") as file:
    file.write(told + "\n")
