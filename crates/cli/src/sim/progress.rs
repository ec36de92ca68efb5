//! How a run of many worlds goes: seeds, seeds per second, failures. People at a terminal see one
//! line that changes; a log gets a line every ten seconds.

use rustix::time::{ClockId, clock_gettime};
use sim::Summary;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two looks, at a terminal and in a log.
const TERMINAL: Duration = Duration::from_millis(500);
const LOG: Duration = Duration::from_secs(10);

/// Tells on standard error how it goes.
pub(super) struct Progress {
    start: Instant,
    next: Instant,
    every: Duration,
    terminal: bool,
    cpu_start: Duration,
    /// The terminal's line is not ended.
    open: bool,
}

/// Seeds per second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    seconds: f64,
    /// Of real time.
    each_second: f64,
    /// Of the time of one core.
    each_core_second: f64,
}

/// Time that this process has been computing.
fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(used.tv_sec).unwrap_or(0),
        u32::try_from(used.tv_nsec).unwrap_or(0),
    )
}

impl Progress {
    pub(super) fn new() -> Self {
        let (start, terminal) = (Instant::now(), std::io::stderr().is_terminal());
        let every = if terminal { TERMINAL } else { LOG };
        Self {
            start,
            next: start + every,
            every,
            terminal,
            cpu_start: cpu_time(),
            open: false,
        }
    }

    /// How long to wait for news at most.
    pub(super) fn patience(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn rate(&self, seeds: u64) -> Rate {
        let seconds = self.start.elapsed().as_secs_f64();
        let cpu = cpu_time().saturating_sub(self.cpu_start).as_secs_f64();
        Rate {
            seconds,
            each_second: seeds as f64 / seconds.max(1e-9),
            each_core_second: seeds as f64 / cpu.max(1e-9),
        }
    }

    /// Tells, when it is time to.
    pub(super) fn tell(&mut self, so_far: &Summary) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + self.every;
        let line = self.line(so_far);
        let mut stderr = std::io::stderr().lock();
        // Where standard error is gone, nobody wants to know.
        let _ = if self.terminal {
            self.open = true;
            write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{line}")
        };
    }

    /// Tells how it went.
    pub(super) fn conclude(&mut self, all: &Summary) {
        self.clear();
        // As above.
        let _ = writeln!(std::io::stderr(), "{}", self.line(all));
    }

    fn line(&self, so_far: &Summary) -> String {
        let Summary {
            seeds, failures, ..
        } = so_far;
        format!("{seeds} seeds, {failures} failed; {}", self.rate(*seeds))
    }

    /// Makes room for other lines.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.open) {
            // As above.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} seeds/s, {:.0} per second of a core, {:.1} s",
            self.each_second, self.each_core_second, self.seconds
        )
    }
}
