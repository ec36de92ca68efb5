# Reads one large file from its beginning to its end, over and over: sequential.py FILE STOP OUT.
# Each word of 8 bytes in it is its own number. OUT has, after each piece, how many were read and each
# time between two of them of more than 100 ms, in ms; or what was wrong.

import array
import os
import sys
import time

PIECE = 1 << 20
path, stop, out = sys.argv[1:4]
pieces, gaps = 0, []


def tell(words):
    with open(out + ".new", "w") as file:
        file.write(words + "\n")
    os.rename(out + ".new", out)


def once(last):
    global pieces
    fd = os.open(path, os.O_RDONLY)
    at = 0
    while piece := os.read(fd, PIECE):
        now = time.monotonic()
        if now - last > 0.1:
            gaps.append(f"{(now - last) * 1000:.0f}")
        last = now
        wanted = array.array("Q", range(at // 8, (at + len(piece)) // 8)).tobytes()
        if piece != wanted:
            raise ValueError(f"other bytes from {at} on")
        # The kernel keeps none of it, so all of it comes from the daemon again.
        os.posix_fadvise(fd, at, len(piece), os.POSIX_FADV_DONTNEED)
        at += len(piece)
        pieces += 1
        tell(" ".join([str(pieces), *gaps]))
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
