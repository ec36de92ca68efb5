//! `ariel trace record`: writes down what programs do on mounts of this machine.
//!
//! Guarantees: no name and no content is in the trace; the number of a file is a digest under a key
//! that is not. The trace is whole at the end, be it by Ctrl-C, the time that was given, or the end
//! of the mounts. Where its file cannot be written it is cut, and the error names the file.

use super::failed;
use crate::args::RecordArgs;
use crate::failure::Failure;
use crate::{control, paths, runtime, show, signals};
use ring::hmac;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trace::{Access, Op, WriteError, Writer};
use wire::limits::BLOCK_BYTES;

/// The accesses of one mount, and of several, come in order but for so much.
const DISORDER_US: u64 = 1_000_000;
/// At the end a mount may take so long to say the rest.
const REST: Duration = Duration::from_secs(5);

/// A mount that is recorded.
struct Recorded {
    lines: BufReader<UnixStream>,
    /// So much later than the mount's clock the time of day is.
    later_us: u64,
}

/// News for the writer.
enum News {
    /// A line of a mount's answer.
    Line {
        client: u32,
        later_us: u64,
        line: Value,
    },
    /// A mount has ended.
    Ended,
    /// A signal: it is enough.
    Enough,
}

/// Microseconds since 1970.
fn time_of_day_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Hides which file a number stands for.
struct Files {
    key: hmac::Key,
    numbers: HashMap<[u64; 2], u64>,
}

impl Files {
    fn new(key: Option<&str>) -> Self {
        let random = || net::entropy::secret().to_vec();
        let key = key.map_or_else(random, |word| word.as_bytes().to_vec());
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            numbers: HashMap::new(),
        }
    }

    fn number(&mut self, file: [u64; 2]) -> u64 {
        let key = &self.key;
        *self.numbers.entry(file).or_insert_with(|| {
            let file = file.map(u64::to_le_bytes).concat();
            let bytes = hmac::sign(key, &file);
            let first = bytes.as_ref().iter().take(8);
            first.fold(0, |number, byte| number << 8 | u64::from(*byte))
        })
    }
}

/// Writes accesses in the order of their times.
struct Ordered {
    writer: Writer<BufWriter<File>>,
    begins_us: u64,
    newest_us: u64,
    /// By their times, and among those of one time as they came.
    waiting: BTreeMap<(u64, u64), Access>,
    came: u64,
}

impl Ordered {
    fn new(out: &Path) -> Result<Self, Failure> {
        let at = |error: std::io::Error| failed(format_args!("{}: {error}", out.display()));
        let begins_s = time_of_day_us() / 1_000_000;
        let file = BufWriter::new(File::create(out).map_err(at)?);
        let begins = u32::try_from(begins_s).unwrap_or(0);
        let writer = Writer::of_time(file, BLOCK_BYTES, begins).map_err(at)?;
        Ok(Self {
            writer,
            begins_us: begins_s * 1_000_000,
            newest_us: 0,
            waiting: BTreeMap::new(),
            came: 0,
        })
    }

    fn push(&mut self, access: Access) -> Result<(), WriteError> {
        let time_us = access.time_us.saturating_sub(self.begins_us);
        self.newest_us = self.newest_us.max(time_us);
        let access = Access { time_us, ..access };
        self.waiting.insert((time_us, self.came), access);
        self.came += 1;
        self.write_before(self.newest_us.saturating_sub(DISORDER_US))
    }

    /// Writes what is older than this.
    fn write_before(&mut self, time_us: u64) -> Result<(), WriteError> {
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().0 >= time_us {
                break;
            }
            self.writer.write(&entry.remove())?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), WriteError> {
        self.write_before(u64::MAX)?;
        Ok(self.writer.finish().map(drop)?)
    }
}

pub(super) fn record(args: &RecordArgs) -> Result<String, Failure> {
    if usize::from(args.client) + args.mounts.len() > usize::from(u16::MAX) {
        return Err(failed(
            "clients have numbers up to 65535: choose a smaller --client",
        ));
    }
    let streams = args.mounts.iter().map(|mount| ask(mount));
    let streams = streams.collect::<Result<Vec<Recorded>, Failure>>()?;
    let ends = streams.iter().map(|one| one.lines.get_ref().try_clone());
    let ends = ends
        .collect::<std::io::Result<Vec<UnixStream>>>()
        .map_err(failed)?;
    let (mut files, mut ordered) = (Files::new(args.key.as_deref()), Ordered::new(&args.out)?);
    let (send, news) = mpsc::channel();
    for (at, stream) in streams.into_iter().enumerate() {
        hear(stream, (u32::from(args.client) + at as u32, send.clone()))?;
    }
    signals::on_end(move || drop(send.send(News::Enough))).map_err(failed)?;
    show::print(&format!(
        "recording to {}: Ctrl-C ends it",
        args.out.display()
    ));
    let took = take((args, &ends), &news, |from, line| {
        each(&line, from, &mut files, &mut |access| {
            let pushed = ordered.push(access);
            pushed.map_err(|error| failed(format_args!("{}: {error}", args.out.display())))
        })
    });
    // The trace has all that came before the end, whichever that is.
    let (count, kept) = (ordered.came, ordered.finish());
    let missed = took?;
    kept.map_err(|error| failed(format_args!("{}: {error}", args.out.display())))?;
    if missed > 0 {
        eprintln!("missed: {missed} accesses that came faster than they could be written");
    }
    let (files, out) = (files.numbers.len(), args.out.display());
    Ok(format!(
        "recorded: {count} accesses to {files} files in {out}\n"
    ))
}

/// Asks a mount for its accesses; it has begun to say them when this returns.
fn ask(mount: &Path) -> Result<Recorded, Failure> {
    let at = |error: &dyn std::fmt::Display| failed(format_args!("{}: {error}", mount.display()));
    let point = paths::mount_point(mount).map_err(|error| at(&error))?;
    let asked = control::follow(&runtime::of_mount(&point), &json!({ "ask": "record" }));
    let asked = asked.map_err(|error| at(&format_args!("{error:#}")))?;
    let Some(stream) = asked else {
        return Err(at(
            &"no mount of this user answers here: see `findmnt -t fuse.ariel`, and run this as the \
              user who mounted it",
        ));
    };
    let mut lines = BufReader::new(stream);
    let begun = line(&mut lines).map_err(|error| at(&error))?;
    let begun = begun.unwrap_or_default();
    if let Some(refused) = begun["error"].as_str() {
        return Err(at(&refused));
    }
    match begun["now_ns"].as_u64() {
        Some(now_ns) => Ok(Recorded {
            lines,
            later_us: time_of_day_us().saturating_sub(now_ns / 1000),
        }),
        None => Err(at(
            &"the mount does not record: use the same version of ariel",
        )),
    }
}

/// The next line; `None`: the mount has ended.
fn line(lines: &mut BufReader<UnixStream>) -> std::io::Result<Option<Value>> {
    let mut text = String::new();
    if lines.read_line(&mut text)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&text)?))
}

/// Hears what a mount says, until it ends.
fn hear(recorded: Recorded, (client, send): (u32, Sender<News>)) -> Result<(), Failure> {
    let Recorded {
        mut lines,
        later_us,
    } = recorded;
    let run = move || {
        while let Ok(Some(line)) = line(&mut lines) {
            if send
                .send(News::Line {
                    client,
                    later_us,
                    line,
                })
                .is_err()
            {
                return;
            }
        }
        drop(send.send(News::Ended));
    };
    let thread = thread::Builder::new().name("mount".into()).spawn(run);
    thread.map(drop).map_err(failed)
}

/// Takes the lines of the mounts: until it is enough, and then those that are on their way. How
/// many accesses the mounts left out.
fn take(
    (args, ends): (&RecordArgs, &[UnixStream]),
    news: &Receiver<News>,
    mut line_of: impl FnMut((u32, u64), Value) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let seconds = args.seconds.map(Duration::from_secs);
    let mut end = seconds.and_then(|seconds| Instant::now().checked_add(seconds));
    let (mut mounts, mut missed, mut enough) = (args.mounts.len(), 0, false);
    while mounts > 0 {
        let heard = match end {
            None => news.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(end) => news.recv_timeout(end.saturating_duration_since(Instant::now())),
        };
        match heard {
            Ok(News::Line {
                client,
                later_us,
                line,
            }) => {
                missed += line["missed"].as_u64().unwrap_or(0);
                line_of((client, later_us), line)?;
            }
            Ok(News::Ended) => mounts -= 1,
            _ if enough => break,
            Ok(News::Enough) | Err(_) => {
                // A mount whose program says that it listens no more says the rest, and ends.
                enough = true;
                end = Instant::now().checked_add(REST);
                for mount in ends {
                    let _ = mount.shutdown(Shutdown::Write);
                }
            }
        }
    }
    Ok(missed)
}

/// Each access of a line, block by block.
fn each(
    line: &Value,
    (client, later_us): (u32, u64),
    files: &mut Files,
    sink: &mut impl FnMut(Access) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let none = Vec::new();
    for access in line["accesses"].as_array().unwrap_or(&none) {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let Some(op) = Op::ALL.get(number(&access[1]) as usize).copied() else {
            return Err(failed(
                "the mount names an unknown operation: use the same version",
            ));
        };
        let file = [
            number(&access[2][0]) << 32 | number(&access[2][1]),
            number(&access[3]),
        ];
        let (offset, bytes) = (number(&access[4]), number(&access[5]));
        let size = u64::from(BLOCK_BYTES);
        let blocks = match op {
            Op::Read | Op::Write if bytes == 0 => 0..0,
            Op::Read | Op::Write => offset / size..(offset + bytes).div_ceil(size),
            Op::Open | Op::Delete | Op::Attributes => 0..1,
        };
        let access = Access {
            time_us: number(&access[0]) / 1000 + later_us,
            client,
            op,
            file: files.number(file),
            block: 0,
        };
        for block in blocks {
            let block = u32::try_from(block).unwrap_or(u32::MAX);
            sink(Access { block, ..access })?;
        }
    }
    Ok(())
}
