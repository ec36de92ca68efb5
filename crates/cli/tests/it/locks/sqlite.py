# One of several programs that write one database at once, locking as sqlite does by default.

import sqlite3
import sys

me, transactions = map(int, sys.argv[1:3])
database = sqlite3.connect("db.sqlite", timeout=120, isolation_level=None)
for n in range(transactions):
    database.execute("begin immediate")
    database.execute("insert into t values (?, ?, ?)", (me, n, "x" * (n % 700)))
    database.execute("update total set n = n + 1")
    database.execute("commit")
