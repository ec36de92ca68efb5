//! Figures 4 to 14 of the paper on cooperative caching, made again, and the same for our own
//! algorithm. `docs/reproduction/cooperative.md` is what comes out.

mod figures;
mod lab;
mod ours;
mod paper;
mod plot;
mod report;
mod sweeps;

pub use paper::{ITEMS, Item};
pub use plot::{Plot, Shape};
pub use report::{Figure, Report, Table};

use lab::Lab;

/// How thorough it is to be.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The seed of all traces.
    pub seed: u64,
    /// Also the figures that take minutes: the snooped trace.
    pub long: bool,
}

/// Makes a figure by changing one condition.
type Sweep = fn(&Lab) -> Figure;

/// Makes all figures. `begins` learns what comes next.
pub fn cooperative(effort: Effort, begins: &mut dyn FnMut(&str)) -> Report {
    begins("the Sprite trace");
    let lab = Lab::new(effort.seed);
    let mut all = Vec::new();
    begins("figures 4 to 7");
    let runs = figures::runs(&lab);
    all.extend([
        figures::response(&runs),
        figures::levels(&runs),
        figures::load(&runs),
        figures::clients(&runs),
    ]);
    let sweeps: [(&str, Sweep); 6] = [
        ("figure 8", sweeps::direct),
        ("figure 9", sweeps::share),
        ("figure 10", sweeps::chances),
        ("figure 11", sweeps::client_memory),
        ("figure 12", sweeps::server_memory),
        ("figure 13", sweeps::network),
    ];
    for (name, sweep) in sweeps {
        begins(name);
        all.push(sweep(&lab));
    }
    if effort.long {
        begins("figure 14");
        all.push(ours::snooped(effort.seed));
    }
    begins("our own algorithm");
    all.extend(ours::workloads(effort));
    all.push(ours::parts(effort.seed));
    Report {
        name: "cooperative",
        title: "Cooperative caching, reproduced".to_owned(),
        text: figures::introduction(&lab, effort),
        figures: all,
    }
}

#[cfg(test)]
mod tests;
