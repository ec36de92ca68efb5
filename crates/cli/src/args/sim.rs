//! The command line of `ariel sim`.

use sim::Only;

/// How large simulated worlds are.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum SimSize {
    /// One in eight is large
    Mixed,
    /// All are small
    Small,
    /// All are large
    Large,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel sim --count 1000        a thousand worlds, on all cores
  ariel sim --forever           worlds from a random seed on, until Ctrl-C
  ariel sim --like 7,9 --count 1000
                                a thousand worlds like that of seed 7, and as many like that of 9
  ariel sim --mutants           a test of the judge: which planted faults does it find?
  ariel sim --seed 7 --trace    one world, told step by step; always the same
  ariel sim --seed 7 --shrink   the smallest part of a world that fails as the whole does,
                                told step by step; it ends with the line that repeats it, as
  ariel sim --seed 7 --only faults=2/lost=none/calls=1.1:3+2.1:4-6 --trace
                                of the faults only the second one, no lost messages, of machine 1
                                program 1 call 3, of machine 2 program 1 calls 4 to 6
A world that is wrong is told at once. How it goes is told on standard error.
Exit code: 0 all worlds were right, 1 one was not.")]
pub(crate) struct SimArgs {
    /// The first seed [default: 1; a random one with --forever]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How many seeds [default: 1 with --seed, 100 without]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Worlds like those of these seeds, --count of each: other random numbers for what is drawn
    /// while they run. A fault that is rare in all worlds is less so in those like one that failed
    #[arg(long, value_name = "SEED,...", value_delimiter = ',',
        conflicts_with_all = ["seed", "forever", "trace", "mutants"])]
    pub(crate) like: Vec<u64>,
    /// Seed after seed until SIGINT or SIGTERM
    #[arg(long, conflicts_with_all = ["count", "trace"])]
    pub(crate) forever: bool,
    /// Tell in how many worlds each rare thing happened
    #[arg(long)]
    pub(crate) coverage: bool,
    /// How large the worlds are
    #[arg(long, value_enum, default_value_t = SimSize::Mixed)]
    pub(crate) size: SimSize,
    /// Plant known faults, one after the other, and tell how soon each is found
    #[arg(long, conflicts_with_all = ["forever", "trace", "count"])]
    pub(crate) mutants: bool,
    /// How many at once [default: one for each core; 1 with --trace]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Leave out of the seed's failing world all that is not needed for it to fail, and print
    /// what happens in the rest
    #[arg(long, requires = "seed",
        conflicts_with_all = ["count", "forever", "coverage", "mutants"])]
    pub(crate) shrink: bool,
    /// Let only this part of the seed's world take part: KIND=NUMBERS/..., as --shrink prints it
    #[arg(long, value_name = "PART", requires = "seed",
        conflicts_with_all = ["count", "forever", "mutants"])]
    pub(crate) only: Option<Only>,
    /// Print what happens
    #[arg(long)]
    pub(crate) trace: bool,
}
