# The commands of this repository. Each needs only what it installs itself, and Rust.
.PHONY: help up down build man install uninstall deb test conformance demo soak clean

CARGO = cargo
ARIEL = target/release/ariel
CELL = $(CURDIR)/.cell
# Where `make install` puts the program; mount(8) looks for its helpers in /sbin alone.
PREFIX = /usr/local
# What `ariel run` loads into programs; it is found beside the program or in ../lib.
LIBRARY = libariel_segment.so
HELPERS = mount.ariel mount.fuse.ariel
MAN = $(PREFIX)/share/man/man1
UNITS = $(PREFIX)/lib/systemd/system
USERS = $(PREFIX)/lib/sysusers.d

# Tests with mounts wait more than they compute: one more at once than there are processors.
TESTS = $(shell expr $$(nproc) + 1)

help:
	@echo 'make up     build, start a server and mount it at .cell/mount'
	@echo 'make down   unmount and stop it; the data stays in .cell/data'
	@echo 'make install    the program to $(PREFIX)/bin, its library for memory, what mount(8) and'
	@echo '                /etc/fstab need, a unit for systemd and /etc/ariel; make uninstall takes'
	@echo '                all but /etc/ariel away'
	@echo 'make deb    Debian packages of the program and of the service, in target/debian'
	@echo 'make test   format, lints, all tests (mounting tests need root)'
	@echo 'make conformance  suites of others and demanding programs in their long forms;'
	@echo '           with XFSTESTS=DIR, GNU_TAR=DIR, GIT_SRC=DIR, CPYTHON=DIR these suites, too'
	@echo 'make demo   two mounts and real programs: a C build, git, sqlite, tar'
	@echo 'make soak   the long tests: a minute of contention each, then simulated worlds until'
	@echo '           Ctrl-C (make soak FIRST=N: from seed N on; else from a random one)'
	@echo 'make clean  take the mount away, then what was built (the data stays)'

build:
	$(CARGO) build --release --locked

up: build
	@tools/setup mount
	@mkdir -p $(CELL)
	$(ARIEL) up --data $(CELL)/data --mount $(CELL)/mount
	@echo
	@echo 'Try it:   echo hello > .cell/mount/hello; ls -l .cell/mount'
	@echo 'Look:     $(ARIEL) status .cell/mount'
	@echo 'End it:   make down'

man: build
	$(ARIEL) __pages target/man

# Debian packages: target/debian/*.deb.
deb: man
	@tools/setup deb
	cargo-deb --no-build -p ariel-cli
	cargo-deb --no-build -p ariel-cli --variant server

install: man
	install -D -m 755 $(ARIEL) $(DESTDIR)$(PREFIX)/bin/ariel
	install -D -m 644 target/release/$(LIBRARY) $(DESTDIR)$(PREFIX)/lib/$(LIBRARY)
	install -D -m 644 crates/preload/include/segment.h $(DESTDIR)$(PREFIX)/include/ariel/segment.h
	install -d $(DESTDIR)/sbin
	for name in $(HELPERS); do ln -sf $(PREFIX)/bin/ariel $(DESTDIR)/sbin/$$name; done
	install -d $(DESTDIR)$(MAN)
	install -m 644 target/man/*.1 $(DESTDIR)$(MAN)
	install -d $(DESTDIR)$(UNITS) $(DESTDIR)$(USERS) $(DESTDIR)/etc/ariel
	sed 's#/usr/bin/ariel#$(PREFIX)/bin/ariel#' packaging/ariel-server.service \
		> $(DESTDIR)$(UNITS)/ariel-server.service
	install -m 644 packaging/ariel.sysusers $(DESTDIR)$(USERS)/ariel.conf
	[ -e $(DESTDIR)/etc/ariel/ariel.toml ] \
		|| install -m 644 packaging/etc/ariel.toml $(DESTDIR)/etc/ariel/ariel.toml
	@[ -n '$(DESTDIR)' ] || echo 'A server as a service: systemd-sysusers;' \
		'systemctl daemon-reload; systemctl enable --now ariel-server'

# Configuration and stored files stay.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/lib/$(LIBRARY) $(DESTDIR)$(PREFIX)/include/ariel/segment.h
	rm -f $(DESTDIR)$(PREFIX)/bin/ariel $(addprefix $(DESTDIR)/sbin/,$(HELPERS)) \
		$(DESTDIR)$(UNITS)/ariel-server.service $(DESTDIR)$(USERS)/ariel.conf \
		$(DESTDIR)$(MAN)/ariel.1 $(DESTDIR)$(MAN)/ariel-*.1

down:
	$(ARIEL) down --data $(CELL)/data

test:
	@tools/setup suites
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUST_TEST_THREADS=$(TESTS) $(CARGO) test --workspace --locked --no-fail-fast

conformance: build
	@tools/setup suites
	ARIEL_LONG=1 $(CARGO) test --release --locked -p ariel-cli --test it -- \
		suites given two_mounts programs postgres large kernels delegation transport packages flood

demo: build
	@tools/setup
	demo/run

soak: build
	@tools/setup
	ARIEL_LONG=1 $(CARGO) test --release --locked -p ariel-cli --test it -- contention torture
	$(ARIEL) sim --forever $(if $(FIRST),--seed $(FIRST))

clean:
	@if [ -x $(ARIEL) ] && grep -q ' $(CELL)/mount ' /proc/self/mountinfo; then \
		$(ARIEL) down --data $(CELL)/data; fi
	$(CARGO) clean
