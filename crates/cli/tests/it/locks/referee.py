# One of several programs that lock overlapping ranges of `file`. Each notes on a board, a file
# outside of the mounts that all of them have mapped, which cells it has locked and how, after it
# has got a lock and before it gives one up; and looks whether anybody else's note excludes that.

import errno
import fcntl
import mmap
import os
import random
import sys

CELLS = 24
SHARED, EXCLUSIVE = 1, 2

me, board, operations, programs = int(sys.argv[1]), *sys.argv[2:3], *map(int, sys.argv[3:5])
draw = random.Random(me)
notes = mmap.mmap(os.open(board, os.O_RDWR), 0)
file = os.open("file", os.O_RDWR)
given = 0


def at(program, cell):
    return program * 256 + cell


def mine(cell):
    return notes[at(me, cell)]


def note(first, last, most):
    for cell in range(first, last):
        notes[at(me, cell)] = min(mine(cell), most)


def got(first, last, how):
    for cell in range(first, last):
        notes[at(me, cell)] = how
    for cell in range(first, last):
        for program in range(programs):
            other = notes[at(program, cell)] if program != me else 0
            if other + how > 2 * SHARED:
                sys.exit(f"cell {cell}: {me} has {how}, and {program} has {other}")


def unlock(first, last):
    note(first, last, 0)
    fcntl.lockf(file, fcntl.LOCK_UN, last - first, first)


for _ in range(operations):
    first = draw.randrange(CELLS)
    last = draw.randrange(first, min(CELLS, first + 8)) + 1
    how = draw.choice([SHARED, SHARED, EXCLUSIVE])
    flags = fcntl.LOCK_SH if how == SHARED else fcntl.LOCK_EX
    if draw.randrange(3) == 0:
        unlock(first, last)
        continue
    if draw.randrange(2):
        flags |= fcntl.LOCK_NB
    # A lock that becomes a weaker one is given up in part, and that is so before the call returns.
    note(first, last, how)
    try:
        fcntl.lockf(file, flags, last - first, first)
        got(first, last, how)
        given += 1
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EDEADLK):
            raise
        unlock(0, CELLS)

unlock(0, CELLS)
print(given)
