# A program that locks: it does what its input says, line by line, and says what came of it and
# when: `ok`, the name of an error number, or a value, and nanoseconds of the machine's clock.

import ctypes
import errno
import fcntl
import os
import signal
import struct
import sys
import threading
import time

OFD = {"get": 36, "try": 37, "wait": 38}
TRADITIONAL = {"get": fcntl.F_GETLK, "try": fcntl.F_SETLK, "wait": fcntl.F_SETLKW}
KINDS = {"sh": fcntl.F_RDLCK, "ex": fcntl.F_WRLCK, "un": fcntl.F_UNLCK}
WHOLE = {"sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX, "un": fcntl.LOCK_UN}
FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY | os.O_CREAT, "rw": os.O_RDWR | os.O_CREAT}
LAYOUT = "hhqqi4x"

files = {}
threads = {}


class Alarm(Exception):
    pass


def on_alarm(*_):
    raise Alarm


def say(what):
    sys.stdout.write(f"{what} {time.monotonic_ns()}\n")
    sys.stdout.flush()


def part(table, name, how, kind, first, length):
    wanted = struct.pack(LAYOUT, KINDS[kind], os.SEEK_SET, int(first), int(length), 0)
    found = struct.unpack(LAYOUT, fcntl.fcntl(files[name], table[how], wanted))
    if how != "get":
        return "ok"
    kinds = {number: kind for kind, number in KINDS.items()}
    return ",".join(map(str, (kinds[found[0]], found[2], found[3], found[4])))


def do(words):
    match words:
        case ["open", name, path, flags]:
            files[name] = os.open(path, FLAGS[flags], 0o644)
            os.set_inheritable(files[name], True)
        case ["dup", name, new]:
            files[new] = os.dup(files[name])
        case ["close", name]:
            os.close(files.pop(name))
        case ["flock", name, kind, how]:
            fcntl.flock(files[name], WHOLE[kind] | (fcntl.LOCK_NB if how == "try" else 0))
        case ["lock", *rest]:
            return part(TRADITIONAL, *rest)
        case ["ofd", *rest]:
            return part(OFD, *rest)
        case ["alarm", seconds, *rest]:
            signal.signal(signal.SIGALRM, on_alarm)
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
            try:
                return do(rest)
            except Alarm:
                return "EINTR"
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        case ["restart", seconds, *rest]:
            # The call begins again by itself after the handler, as programs often want it.
            signal.signal(signal.SIGALRM, lambda *_: None)
            ctypes.CDLL(None).siginterrupt(signal.SIGALRM, 0)
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
            return do(rest)
        case ["thread", name, *rest]:
            threads[name] = threading.Thread(target=lambda: say(outcome(rest)))
            threads[name].start()
            return None
        case ["child", *rest]:
            # A child that inherits everything, and lives for ever.
            child = os.fork()
            if child == 0:
                signal.pause()
            return str(child)
        case ["lease", name, kind]:
            fcntl.fcntl(files[name], fcntl.F_SETLEASE, KINDS[kind])
        case ["pid"]:
            return str(os.getpid())
    return "ok"


def outcome(words):
    try:
        return do(words)
    except OSError as error:
        # One of two names of its number.
        return errno.errorcode[error.errno].replace("EDEADLOCK", "EDEADLK")


for line in sys.stdin:
    said = outcome(line.split())
    if said is not None:
        say(said)
