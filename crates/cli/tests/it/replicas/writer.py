# Changes every file of a volume to a generation: writer.py DIR GENERATION. Each file is one line over
# and over, which tells the generation; the marks of a directory have it in their names, too.

import os
import sys

DIRS, FILES, MARKS = 4, 6, 5
# Lines of the small files, and of the one large file of each directory.
SMALL, LARGE = 300, 200_000


def put(path, line, lines):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    with open(fd, "wb") as file:
        file.write(line * lines)
        file.truncate()


def main(root, generation):
    line = b"g%08d\n" % generation
    for number in range(DIRS):
        path = os.path.join(root, f"d{number}")
        os.makedirs(path, exist_ok=True)
        for file in range(FILES):
            put(os.path.join(path, f"f{file}"), line, SMALL * (file + 1) ** 2 + generation)
        put(os.path.join(path, "large"), line, LARGE + generation)
        old = [name for name in os.listdir(path) if name.startswith("mark.")]
        for mark in range(MARKS):
            put(os.path.join(path, f"mark.{generation}.{mark}"), line, 1)
        for name in old:
            if name.split(".")[1] != str(generation):
                os.unlink(os.path.join(path, name))


main(sys.argv[1], int(sys.argv[2]))
