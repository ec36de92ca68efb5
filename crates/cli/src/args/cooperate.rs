//! The command line of cooperation between the caches of clients.

use clap::ValueEnum;
use server::Policy;

/// How clients lend blocks of their caches to each other, and keep them for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cooperation {
    /// They do not
    Off,
    /// The server sends a client that misses a block to one that has it
    Greedy,
    /// And the last copy of a block that leaves a cache goes to a random client, twice at most
    NChance,
    /// It goes to the client with the least use for its room, by age and cost of fetching
    Weighted,
    /// As weighted, and copies make room for last copies
    #[default]
    Fleet,
}

impl Cooperation {
    /// As the command line has it.
    pub(crate) fn word(self) -> String {
        let shown = self.to_possible_value();
        shown.map_or_else(String::new, |shown| shown.get_name().to_owned())
    }
}

impl From<Cooperation> for Policy {
    fn from(said: Cooperation) -> Policy {
        match said {
            Cooperation::Off => Policy::Off,
            Cooperation::Greedy => Policy::Greedy,
            Cooperation::NChance => Policy::NChance,
            Cooperation::Weighted => Policy::Weighted,
            Cooperation::Fleet => Policy::Fleet,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel cooperate 127.0.0.1:7000            how the clients of this server lend
  ariel cooperate 127.0.0.1:7000 off        from now on, until the server ends
  ariel serve --cooperate off ...           from its start on
Clients hear of it at once. Programs see no difference: docs/cooperation.md.")]
pub(crate) struct CooperateArgs {
    /// The address of a server on this machine
    #[arg(value_name = "ADDR")]
    pub(crate) target: String,
    /// How from now on [default: only say how it is]
    #[arg(value_enum, value_name = "POLICY")]
    pub(crate) policy: Option<Cooperation>,
}
