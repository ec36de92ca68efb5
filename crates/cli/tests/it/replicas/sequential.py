# Reads one large file from its beginning to its end, over and over: sequential.py FILE STOP OUT.
# Each word of 8 bytes in it is its own number. OUT has, after each piece, how many were read and the
# longest time between two of them, in ms; or what was wrong.

import array
import os
import sys
import time

PIECE = 1 << 20
path, stop, out = sys.argv[1:4]
pieces, longest = 0, 0


def tell(words):
    with open(out + ".new", "w") as file:
        file.write(words + "\n")
    os.rename(out + ".new", out)


def once(last):
    global pieces, longest
    fd = os.open(path, os.O_RDONLY)
    at = 0
    while piece := os.read(fd, PIECE):
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        wanted = array.array("Q", range(at // 8, (at + len(piece)) // 8)).tobytes()
        if piece != wanted:
            raise ValueError(f"other bytes from {at} on")
        # The kernel keeps none of it, so all of it comes from the daemon again.
        os.posix_fadvise(fd, at, len(piece), os.POSIX_FADV_DONTNEED)
        at += len(piece)
        pieces += 1
        tell(f"{pieces} {longest * 1000:.0f}")
    if at != os.fstat(fd).st_size or at == 0:
        raise ValueError(f"it ends at {at}")
    os.close(fd)
    return last


try:
    last = time.monotonic()
    while not os.path.exists(stop):
        last = once(last)
except Exception as error:
    tell(f"wrong: {error!r}")
