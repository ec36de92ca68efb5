//! `ariel fsck`: checks a store.

use crate::args::FsckArgs;
use crate::failure::{FAILED, Failure, NOT_RUN};
use crate::show;
use serde_json::json;
use std::process::ExitCode;

pub(crate) fn fsck(args: &FsckArgs) -> Result<ExitCode, Failure> {
    crate::log::to_stderr("warn");
    let report = store::fsck(&args.data)
        .map_err(|error| Failure::new(NOT_RUN, format_args!("fsck: {error}")))?;
    let damages: Vec<String> = report.damages.iter().map(ToString::to_string).collect();
    if args.json {
        let found = json!({
            "clean": damages.is_empty(),
            "objects": report.objects,
            "bytes": report.bytes,
            "orphans": report.orphans.len(),
            "damages": damages,
        });
        show::print(&format!("{found:#}"));
    } else {
        for damage in &damages {
            show::print(damage);
        }
        let (objects, bytes) = (report.objects, report.bytes);
        let verdict = if damages.is_empty() {
            "clean"
        } else {
            "DAMAGED"
        };
        let data = args.data.display();
        show::print(&format!(
            "{data}: {verdict}: {objects} objects, {bytes} bytes"
        ));
    }
    if damages.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        FAILED,
        format_args!(
            "fsck: {} damages in {}: restore the files named above from a copy",
            damages.len(),
            args.data.display()
        ),
    ))
}
