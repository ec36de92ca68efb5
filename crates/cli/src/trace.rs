//! `ariel trace`: makes, records, describes and replays traces of accesses.

mod record;
pub(crate) mod relay;

use crate::args::{
    Form, GenerateArgs, InfoArgs, InputArgs, ReplayArgs, TraceArgs, TraceCommand, Unit, Work,
};
use crate::clock::monotonic_ns;
use crate::failure::{Failure, NOT_RUN};
use logic::peers::{Options as FleetOptions, Policy};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use trace::{
    Access, Builder, Counts, Format, Level, Look, Op, Prices, Reader, Setup, TimeUnit, Trace,
    Workload, Writer,
};

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(NOT_RUN, format_args!("trace: {error}"))
}

pub(crate) fn trace(args: &TraceArgs) -> Result<ExitCode, Failure> {
    let text = match &args.command {
        TraceCommand::Generate(args) => generate(args)?,
        TraceCommand::Record(args) => record::record(args)?,
        TraceCommand::Info(args) => info(args)?,
        TraceCommand::Replay(args) => replay(args)?,
    };
    // A reader that closes the pipe has seen enough.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn workload(work: Work) -> Workload {
    match work {
        Work::Sprite => Workload::Sprite,
        Work::Snooped => Workload::Snooped,
        Work::Scan => Workload::Scan,
        Work::Build => Workload::Build,
        Work::Start => Workload::Start,
        Work::Train => Workload::Train,
    }
}

fn generate(args: &GenerateArgs) -> Result<String, Failure> {
    let at =
        |error: &dyn std::fmt::Display| failed(format_args!("{}: {error}", args.out.display()));
    let file = File::create(&args.out).map_err(|error| at(&error))?;
    let writer = Writer::new(BufWriter::new(file), trace::BLOCK_BYTES);
    let mut writer = writer.map_err(|error| at(&error))?;
    let mut count = 0_u64;
    for access in workload(args.work).accesses(args.seed) {
        writer.write(&access).map_err(|error| at(&error))?;
        count += 1;
    }
    writer.finish().map_err(|error| at(&error))?;
    Ok(format!(
        "written: {count} accesses to {}\n",
        args.out.display()
    ))
}

/// Opens the traces, one client after the other where the format names none.
fn readers(input: &InputArgs) -> Result<Vec<Reader>, Failure> {
    let columns = input.columns.clone().map(|mut columns| {
        columns.delimiter = u8::try_from(input.delimiter).unwrap_or(b',');
        columns.block_bytes = input.block_bytes;
        columns.time_unit = match input.time_unit {
            Unit::S => TimeUnit::Seconds,
            Unit::Ms => TimeUnit::Milliseconds,
            Unit::Us => TimeUnit::Microseconds,
            Unit::Ns => TimeUnit::Nanoseconds,
        };
        columns
    });
    let format = match (input.format, columns) {
        (Some(Form::Csv) | None, Some(columns)) => Some(Format::Csv(columns)),
        (Some(Form::Own), _) => Some(Format::Own),
        (Some(Form::OracleGeneral), _) => Some(Format::OracleGeneral),
        (Some(Form::Vscsi), _) => Some(Format::Vscsi),
        (Some(Form::Csv) | None, None) => None,
    };
    let open = |(client, path): (usize, &std::path::PathBuf)| {
        let path: &Path = path;
        let opened = Reader::open(
            path,
            format.as_ref(),
            input.block_bytes,
            client as u32,
            input.apart,
        );
        opened.map_err(failed)
    };
    input.files.iter().enumerate().map(open).collect()
}

/// All accesses, in the order of their times.
fn each(
    input: &InputArgs,
    sink: &mut dyn FnMut(&Access) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut refused = Ok(());
    trace::merge(readers(input)?, |access| {
        refused = sink(access);
        refused.is_ok()
    })
    .map_err(failed)?;
    refused
}

fn read(input: &InputArgs, look: &mut Look) -> Result<Trace, Failure> {
    let block_bytes = readers(input)?
        .first()
        .map_or(input.block_bytes, Reader::block_bytes);
    let mut builder = Builder::new(block_bytes);
    each(input, &mut |access| {
        look.see(access);
        builder.push(access).map_err(failed)
    })?;
    Ok(builder.finish())
}

fn blocks(mib: u32, trace: &Trace) -> usize {
    (u64::from(mib) * (1 << 20) / u64::from(trace.block_bytes())) as usize
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", part as f64 / of.max(1) as f64 * 100.0)
}

fn info(args: &InfoArgs) -> Result<String, Failure> {
    let mut look = Look::default();
    let trace = read(&args.input, &mut look)?;
    let (blocks_named, shared) = look.blocks();
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &format!("{name:<26}{value}\n");
    for op in Op::ALL {
        line(op.word(), look.ops[op as usize].to_string());
    }
    line("clients", trace.clients().to_string());
    line("files", trace.files().to_string());
    line(
        "blocks",
        format!("{blocks_named} of {} bytes", trace.block_bytes()),
    );
    line("shared blocks", percent(shared, blocks_named));
    line(
        "reads in order",
        percent(look.in_order, look.ops[Op::Read as usize]),
    );
    line("hours", format!("{:.2}", look.last_us as f64 / 3.6e9));
    for mib in [1, 4, 16, 64, 256] {
        let mut options = FleetOptions::new(Policy::Off, trace.clients(), blocks(mib, &trace), 0);
        options.own_blocks = options.own_blocks.max(1);
        let counts = trace::replay(
            &trace,
            &Setup {
                options,
                warm: trace.len() * 3 / 10,
            },
        );
        let hits = counts.reads[Level::Local as usize];
        line(
            &format!("hits with {mib} MiB each"),
            percent(hits, counts.all_reads()),
        );
    }
    Ok(text)
}

fn replay(args: &ReplayArgs) -> Result<String, Failure> {
    let trace = read(&args.input, &mut Look::default())?;
    let (client, server) = (
        blocks(args.client_mib, &trace),
        blocks(args.server_mib, &trace),
    );
    let policies = match args.policies.as_slice() {
        [] => Policy::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut rows = Vec::new();
    for policy in policies {
        let setup = Setup {
            options: FleetOptions::new(policy, trace.clients(), client.max(1), server),
            warm: trace.len() * args.warm as usize / 100,
        };
        let begun = monotonic_ns();
        let counts = trace::replay(&trace, &setup);
        rows.push((policy, counts, monotonic_ns() - begun));
    }
    Ok(match args.json {
        true => format!(
            "{:#}\n",
            rows.iter()
                .map(|row| as_json(row, &trace))
                .collect::<serde_json::Value>()
        ),
        false => table(&rows),
    })
}

type Row = (Policy, Counts, u64);

fn as_json((policy, counts, took_ns): &Row, trace: &Trace) -> serde_json::Value {
    let reads =
        Level::ALL.map(|level| (level.word().to_owned(), json!(counts.reads[level as usize])));
    json!({
        "policy": policy.word(),
        "reads": serde_json::Value::Object(reads.into_iter().collect()),
        "writes": counts.writes,
        "response_us": counts.response_ns(&Prices::PAPER) / 1e3,
        "response_ssd_us": counts.response_ns(&Prices::TODAY_SSD) / 1e3,
        "response_disk_us": counts.response_ns(&Prices::TODAY_DISK) / 1e3,
        "server_load": counts.load.total(),
        "messages": counts.messages,
        "blocks_moved": counts.moved,
        "wrong_hints": counts.wrong_hints,
        "accesses_per_second": trace.len() as f64 / (*took_ns as f64 / 1e9),
    })
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<10}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>12}{:>12}\n",
        "policy", "read, us", "SSD, us", "own", "server", "peer", "disk", "load", "messages"
    );
    for (policy, counts, _) in rows {
        let share = |level| percent(counts.reads[level as usize], counts.all_reads());
        text += &format!(
            "{:<10}{:>10.0}{:>9.1}{:>9}{:>9}{:>9}{:>9}{:>12}{:>12}\n",
            policy.word(),
            counts.response_ns(&Prices::PAPER) / 1e3,
            counts.response_ns(&Prices::TODAY_SSD) / 1e3,
            share(Level::Local),
            share(Level::Server),
            share(Level::Peer),
            share(Level::Disk),
            counts.load.total(),
            counts.messages
        );
    }
    text
}
