# A program that has files open: it does what its input says, line by line, and says what came of
# it: `ok`, a number of an error, or the content.

import os
import sys

FLAGS = {"r": os.O_RDONLY, "rw": os.O_RDWR}

files = {}


def done(word, name, more):
    if word == "open":
        how, path = more
        files[name] = os.open(path, FLAGS[how])
    elif word == "write":
        text = " ".join(more).encode()
        assert os.write(files[name], text) == len(text)
    elif word == "sync":
        os.fsync(files[name])
    elif word == "read":
        return os.pread(files[name], 1 << 20, 0).decode()
    else:
        sys.exit(f"it does not know {word}")
    return "ok"


for line in sys.stdin:
    word, name, *more = line.rstrip("\n").split(" ")
    try:
        what = done(word, name, more)
    except OSError as error:
        what = error.errno
    print(what, flush=True)
