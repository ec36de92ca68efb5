//! Takes the measures, round by round, and collects the figures.

use crate::measure::{MEASURES, Measure, Side};
use crate::place::{At, Clock, Fresh, Sizes, Tells, Uses};
use crate::report::{Figure, Report};
use rustix::fs::{Mode, OFlags, open, syncfs};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The mounts that are measured: of one tree.
#[derive(Clone, Debug)]
pub struct Mounted {
    /// One to which opens are announced.
    pub announced: PathBuf,
    /// One to which they are not; also the one that looks at what is done on the first.
    pub silent: Option<PathBuf>,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// A local directory.
    pub local: PathBuf,
    /// The mounts.
    pub mounted: Mounted,
    /// How often each measure is taken on each side.
    pub rounds: u32,
    /// Only the measures with one of these names; empty: all.
    pub only: Vec<String>,
    /// How many small files, and names.
    pub files: u32,
    /// Bytes of the large file.
    pub large_bytes: u64,
    /// C sources, and the command that builds them.
    pub project: Option<(PathBuf, String)>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Which figure is being measured.
    pub name: &'static str,
    /// Measures that have been taken, and how many there are.
    pub taken: (u32, u32),
}

/// The services that a run needs from outside.
pub struct Outside<'a> {
    /// The clock.
    pub clock: Clock,
    /// Mounts again; `None`: it cannot be done.
    pub fresh: Option<&'a mut Fresh<'a>>,
    /// Tells what the processes behind a mount use; `None`: that is not known.
    pub uses: Option<&'a Uses<'a>>,
    /// Tells what the client behind a mount has told its server; `None`: that is not known.
    pub told: Option<&'a Tells<'a>>,
    /// Is told how far it is; false ends the run.
    pub progress: &'a mut dyn FnMut(&Progress) -> bool,
}

/// The names of all figures.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let lines = MEASURES.iter().flat_map(|measure| measure.lines);
    lines.map(|line| line.name).collect()
}

/// Takes all measures. Files made for them are removed again.
///
/// # Errors
/// A directory cannot be made or removed; a name is not known. That one measure cannot be taken is
/// no error: the report says so.
pub fn run(options: &Options, mut outside: Outside<'_>) -> io::Result<Report> {
    let known = names();
    if let Some(name) = options
        .only
        .iter()
        .find(|name| !known.contains(&name.as_str()))
    {
        let what = format!(
            "no measure is called {name}: choose from {}",
            known.join(", ")
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let own = format!("bench-{}", std::process::id());
    let mount = options.mounted.announced.join(&own);
    let top = options.local.join(&own);
    let local = as_deep_as(&mount, &top);
    fs::create_dir_all(&local)?;
    let made = fs::create_dir(&mount);
    let at = Places {
        local: &local,
        own: &own,
    };
    let report = made.and_then(|()| take_all(options, at, &mut outside));
    let removed = [&top, &mount].map(fs::remove_dir_all);
    let report = report?;
    removed.into_iter().collect::<io::Result<()>>()?;
    Ok(report)
}

/// A directory below `top` whose path has as many names as that of `mount`: each costs a look-up.
fn as_deep_as(mount: &Path, top: &Path) -> PathBuf {
    let names = |path: &Path| path.components().count();
    let more = names(mount).saturating_sub(names(top));
    top.join((0..more).map(|_| "deeper").collect::<PathBuf>())
}

/// Where it is measured: a local directory, and one of this name in each mount.
#[derive(Clone, Copy)]
struct Places<'a> {
    local: &'a Path,
    own: &'a str,
}

fn wanted(options: &Options, measure: &Measure) -> bool {
    let named = |name: &str| options.only.iter().any(|only| only == name);
    options.only.is_empty() || measure.lines.iter().any(|line| named(line.name))
}

fn take_all(
    options: &Options,
    places: Places<'_>,
    outside: &mut Outside<'_>,
) -> io::Result<Report> {
    let mut report = Report {
        rounds: options.rounds,
        ..Report::default()
    };
    let measures: Vec<&Measure> = MEASURES
        .iter()
        .filter(|measure| wanted(options, measure))
        .collect();
    for (index, measure) in (0..).zip(&measures) {
        let mut figures: Vec<Figure> = measure.lines.iter().map(Figure::new).collect();
        let mut taken = Ok(());
        for round in 0..options.rounds {
            let progress = Progress {
                name: measure.lines[0].name,
                taken: (
                    index * options.rounds + round,
                    measures.len() as u32 * options.rounds,
                ),
            };
            if !(outside.progress)(&progress) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "told to end"));
            }
            taken = take(options, (places, round), (measure, &mut figures), outside);
            if taken.is_err() {
                break;
            }
        }
        match taken {
            Ok(()) => report.figures.extend(figures),
            Err(error) => {
                let names = figures.iter().map(|figure| figure.name.to_owned());
                report
                    .not_taken
                    .extend(names.map(|name| (name, error.to_string())));
            }
        }
    }
    Ok(report)
}

/// Takes one measure on its sides.
fn take(
    options: &Options,
    (places, round): (Places<'_>, u32),
    (measure, figures): (&Measure, &mut [Figure]),
    outside: &mut Outside<'_>,
) -> io::Result<()> {
    let cannot = |why: &str| Err(io::Error::new(io::ErrorKind::Unsupported, why));
    let mount = match (measure.side, &options.mounted.silent) {
        (Side::Silent, Some(silent)) => silent,
        (Side::Silent, None) => return cannot("it needs a mount with --opens silent"),
        (Side::Cold, _) if outside.fresh.is_none() => {
            return cannot("it needs a mount that can be made anew: let the bench start its own");
        }
        (Side::Served, _) if outside.uses.is_none() || outside.told.is_none() => {
            return cannot(
                "it needs a mount whose processes are known: let the bench start its own",
            );
        }
        _ => &options.mounted.announced,
    };
    let both = matches!(measure.side, Side::Both | Side::Silent);
    let local = both.then(|| places.local.to_owned());
    let dir = mount.join(places.own);
    let mut sides = vec![
        Some((dir, Some(&**mount))),
        local.map(|local| (local, None)),
    ];
    if round % 2 == 1 {
        sides.reverse();
    }
    for (dir, mount) in sides.into_iter().flatten() {
        let values = take_on(options, (&dir, mount), (places, measure), outside)?;
        for (figure, value) in figures.iter_mut().zip(values) {
            let side = match mount {
                Some(_) => &mut figure.mount,
                None => &mut figure.local,
            };
            side.push(value);
        }
    }
    Ok(())
}

fn take_on(
    options: &Options,
    (dir, mount): (&Path, Option<&Path>),
    (places, measure): (Places<'_>, &Measure),
    outside: &mut Outside<'_>,
) -> io::Result<Vec<f64>> {
    let mut fresh: Box<dyn FnMut() -> io::Result<()> + '_> =
        match (outside.fresh.as_deref_mut(), mount) {
            (Some(again), Some(mount)) => Box::new(move || again(mount)),
            _ => Box::new(|| sync(dir)),
        };
    let uses = outside.uses.zip(mount);
    let uses = uses.map(|(uses, mount)| move || uses(mount));
    let told = outside.told.zip(mount);
    let told = told.map(|(told, mount)| move || told(mount));
    let silent = options.mounted.silent.as_deref();
    let at = &mut At {
        dir,
        local: places.local,
        other: mount.and(silent).map(|silent| silent.join(places.own)),
        uses: uses.as_ref().map(|uses| uses as &dyn Fn() -> _),
        told: told.as_ref().map(|told| told as &dyn Fn() -> _),
        clock: outside.clock,
        fresh: &mut *fresh,
        sizes: Sizes {
            files: options.files,
            large_bytes: options.large_bytes,
            project: options.project.clone(),
        },
    };
    (measure.take)(at)
}

/// Everything that was written to this file system is on its disk.
fn sync(dir: &Path) -> io::Result<()> {
    let dir = open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    Ok(syncfs(dir)?)
}
