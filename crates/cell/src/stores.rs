//! Questions about the stores of a server, which has one and may have further ones: the cell passes
//! them on to the server.

use crate::door::{CellDoor, NOT_ADMINISTRATOR};
use crate::load::Load;
use crate::machine::{Machine, Role};
use crate::members::{CellError, refused};
use crate::question::Answer;
use crate::replicas::Replicas;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use wire::{Outcome, Rights, Time, VOLUMES_MAX, VolumeInfo};

/// A question about stores.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreQuestion {
    /// A machine wants to see the volumes of all stores.
    Volumes,
    /// Root of a trusted machine wants a further store.
    Make,
    /// Another server copies a store: with the turn in which it was closed, when it was.
    Ship {
        /// The number of its first volume.
        first_volume: u32,
        /// The turn.
        turn: Option<u64>,
        /// A question about the store's directory.
        ask: ship::Ask,
    },
    /// Another server has copied a store but for what changes still, and wants it closed.
    Leave {
        /// The number of its first volume.
        first_volume: u32,
        /// The other server's name.
        to: String,
    },
    /// Another server does not want a store that was closed for it.
    TakeBack {
        /// The number of its first volume.
        first_volume: u32,
        /// The turn in which it was closed.
        turn: u64,
    },
    /// Root of a trusted machine wants a volume of another server to move here.
    Move {
        /// Its name.
        volume: String,
        /// Its number.
        number: u32,
    },
    /// Does the server that is asked serve this store?
    Serves {
        /// The number of its first volume.
        first_volume: u32,
    },
    /// How far is the move of this volume to here?
    Progress {
        /// Its name.
        volume: String,
    },
    /// Root of a trusted machine wants a move to here not to go on.
    Cancel {
        /// The volume's name.
        volume: String,
    },
    /// Root of a trusted machine wants a replica of a volume on the server that is asked.
    Replicate {
        /// The volume's number.
        volume: u32,
        /// Its name.
        name: String,
    },
    /// Root of a trusted machine wants the replica that the server has no more.
    Unreplicate {
        /// The number of the volume of which it is a replica.
        volume: u32,
    },
    /// Which replicas has a volume?
    Replicas {
        /// Its number.
        volume: u32,
    },
    /// Which volumes have replicas?
    Replicated,
    /// How much has the server that is asked to do, and how much room?
    Load,
    /// Which releases has the server that is asked in its replica?
    Site {
        /// The number of the first volume of the replica's store.
        first_volume: u32,
    },
    /// Root of a trusted machine begins a release: no earlier one can be made any more.
    BeginRelease {
        /// The number of the volume.
        volume: u32,
    },
    /// Root of a trusted machine has prepared a release at the servers that have replicas, and it
    /// is made.
    Release {
        /// The turn of the record in which it began.
        turn: u64,
        /// The number of the volume of which it is a release.
        volume: u32,
        /// The release: the next one, or the one that was just made.
        release: u32,
    },
}

/// An answer about stores.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreAnswer {
    /// The volumes.
    Volumes(Listed),
    /// A further store was made, or is there, whose first volume has this number.
    Made(u32),
    /// Of a store's directory.
    Shipped(ship::Told),
    /// The store was closed in this turn.
    Left(u64),
    /// A move.
    Moving(Moving),
    /// The replicas of a volume; none: it has none.
    Replicas(Option<Replicas>),
    /// The volumes that have replicas, by number.
    Replicated(Vec<(u32, Replicas)>),
    /// The releases of a replica.
    Site(Site),
    /// The load of a server.
    Load(Load),
    /// It is done.
    Done,
}

impl StoreAnswer {
    /// The answer as a machine with these rights is told it: of volumes those that it was granted
    /// something of.
    fn within(self, rights: &Rights) -> Self {
        match self {
            Self::Volumes(listed) if rights.is_limited() => {
                let mut all = listed.volumes().unwrap_or_default();
                all.retain(|info| rights.has_part_of(&info.name));
                Self::Volumes(Listed::of(&all))
            }
            answer => answer,
        }
    }
}

/// A list of volumes: answers of the protocol, as text, each with as many volumes as one may have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed(Vec<String>);

impl Listed {
    /// Of these.
    #[must_use]
    pub fn of(volumes: &[VolumeInfo]) -> Listed {
        let all = volumes.chunks(VOLUMES_MAX);
        let text =
            |some: &[VolumeInfo]| BASE64.encode(wire::encode(&Outcome::Volumes(some.to_vec())));
        Listed(all.map(text).collect())
    }

    /// The volumes; `None`: it is no such list.
    #[must_use]
    pub fn volumes(&self) -> Option<Vec<VolumeInfo>> {
        let mut all = Vec::new();
        for text in &self.0 {
            match wire::decode(&BASE64.decode(text).ok()?).ok()? {
                Outcome::Volumes(some) => all.extend(some),
                _ => return None,
            }
        }
        Some(all)
    }
}

/// How far a move is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// The server from which it moves.
    pub from: String,
    /// The stage that it is at.
    pub stage: Stage,
    /// Bytes carried so far.
    pub carried_bytes: u64,
    /// Bytes of the store.
    pub store_bytes: u64,
    /// How long nobody was served, ms; 0: everybody has been so far.
    pub pause_ms: u64,
}

/// A stage of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is copied, and in use where it was.
    Copies {
        /// For the first time, the second, ...
        round: u32,
    },
    /// Nobody is served: what changed last is copied.
    Closed,
    /// It is here, and served.
    Done,
    /// It is where it was, and why.
    Failed(String),
}

/// The releases that a server has in its replica of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The one that readers see; 0: none yet.
    pub published: u32,
    /// When that one was made.
    pub made: Option<Time>,
    /// The one that is all here, and that nobody sees yet.
    pub prepared: Option<u32>,
}

/// Answers questions about the stores of a server.
pub type OnStores = dyn Fn(StoreQuestion) -> Result<StoreAnswer, String> + Send + Sync;

/// May this machine ask that?
fn may_ask(asker: &Machine, question: &StoreQuestion) -> bool {
    let administers = asker.role == Role::Administrator;
    let rights = &asker.rights;
    match question {
        StoreQuestion::Volumes
        | StoreQuestion::Progress { .. }
        | StoreQuestion::Serves { .. }
        | StoreQuestion::Replicas { .. }
        | StoreQuestion::Replicated
        | StoreQuestion::Load
        | StoreQuestion::Site { .. } => true,
        StoreQuestion::Make
        | StoreQuestion::Move { .. }
        | StoreQuestion::Cancel { .. }
        | StoreQuestion::Replicate { .. }
        | StoreQuestion::Unreplicate { .. }
        | StoreQuestion::BeginRelease { .. }
        | StoreQuestion::Release { .. } => {
            let unlimited = rights.uids.is_empty() && asker.parts.is_empty();
            administers || (rights.root && rights.trusted && rights.write && unlimited)
        }
        StoreQuestion::Ship { .. }
        | StoreQuestion::Leave { .. }
        | StoreQuestion::TakeBack { .. } => administers,
    }
}

impl StoreQuestion {
    /// A word for the audit log; none: nothing is changed, and nothing need be noted.
    pub(crate) fn noted(&self) -> Option<serde_json::Value> {
        use serde_json::json;
        match self {
            Self::Volumes
            | Self::Progress { .. }
            | Self::Serves { .. }
            | Self::Ship { .. }
            | Self::Replicas { .. }
            | Self::Replicated
            | Self::Load
            | Self::Site { .. } => None,
            Self::Make => Some(json!("make-store")),
            Self::Leave { first_volume, to } => {
                Some(json!({ "close-store": first_volume, "to": to }))
            }
            Self::TakeBack { first_volume, .. } => Some(json!({ "take-back": first_volume })),
            Self::Move { volume, .. } => Some(json!({ "move": volume })),
            Self::Cancel { volume } => Some(json!({ "cancel-move": volume })),
            Self::Replicate { name, .. } => Some(json!({ "replicate": name })),
            Self::Unreplicate { volume } => Some(json!({ "unreplicate": volume })),
            Self::BeginRelease { .. } => None,
            Self::Release {
                volume, release, ..
            } => Some(json!({ "release": release, "of": volume })),
        }
    }
}

impl CellDoor {
    /// From now on questions about stores are passed on.
    pub fn tell_stores(&self, on_stores: Box<OnStores>) {
        // Set once, by the code that has started the server.
        let _ = self.on_stores.set(on_stores);
    }

    pub(crate) fn answer_about_stores(
        &self,
        asker: &Machine,
        question: StoreQuestion,
    ) -> Result<Answer, CellError> {
        if !may_ask(asker, &question) {
            let only = match question {
                StoreQuestion::Ship { .. }
                | StoreQuestion::Leave { .. }
                | StoreQuestion::TakeBack { .. } => NOT_ADMINISTRATOR,
                _ => {
                    "only root of a machine whose root is root may do that: see `ariel machine \
                     grant --root`, or use an administrator's credential (`--credentials DIR`)"
                }
            };
            return Err(refused(only));
        }
        match self.on_stores.get() {
            Some(on_stores) => {
                let answer = on_stores(question).map_err(refused)?;
                Ok(Answer::Stores(answer.within(&asker.bounds())))
            }
            None => Err(refused("the server is just starting: try again")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(role: Role, rights: Rights) -> Machine {
        Machine {
            id: 1,
            name: "m".into(),
            role,
            rights,
            parts: Vec::new(),
            keys: Vec::new(),
            joined_s: 0,
            revoked_s: None,
        }
    }

    /// Questions of root, of administrators alone, and of everybody.
    fn questions() -> (Vec<StoreQuestion>, Vec<StoreQuestion>, Vec<StoreQuestion>) {
        let (first_volume, turn, name) = (9, 1, || "v".to_owned());
        let files = ship::Ask::Files {
            after: String::new(),
        };
        let of_root = vec![
            StoreQuestion::Make,
            StoreQuestion::Move {
                volume: name(),
                number: 9,
            },
            StoreQuestion::Cancel { volume: name() },
            StoreQuestion::Replicate {
                volume: 9,
                name: name(),
            },
            StoreQuestion::Unreplicate { volume: 9 },
            StoreQuestion::BeginRelease { volume: 9 },
            StoreQuestion::Release {
                volume: 9,
                release: 1,
                turn: 2,
            },
        ];
        let of_administrators = vec![
            StoreQuestion::Ship {
                first_volume,
                turn: None,
                ask: files,
            },
            StoreQuestion::Leave {
                first_volume,
                to: name(),
            },
            StoreQuestion::TakeBack { first_volume, turn },
        ];
        let of_all = vec![
            StoreQuestion::Volumes,
            StoreQuestion::Serves { first_volume },
            StoreQuestion::Progress { volume: name() },
            StoreQuestion::Replicas { volume: 9 },
            StoreQuestion::Load,
            StoreQuestion::Replicated,
            StoreQuestion::Site { first_volume },
        ];
        (of_root, of_administrators, of_all)
    }

    #[test]
    fn only_machines_whose_root_is_root_make_stores_move_and_replicate_them() {
        let root = Rights::all();
        let mut limited = [Rights::default(), root.clone(), root.clone(), root.clone()];
        limited[1].trusted = false;
        limited[2].write = false;
        limited[3].uids = vec![(5, 9)];
        let administrator = machine(Role::Administrator, Rights::default());
        let (of_root, of_administrators, of_all) = questions();
        for question in of_root {
            assert!(may_ask(&machine(Role::Machine, root.clone()), &question));
            assert!(may_ask(&administrator, &question));
            for rights in &limited {
                assert!(!may_ask(&machine(Role::Machine, rights.clone()), &question));
            }
            let within = Machine {
                parts: vec!["home:/".into()],
                ..machine(Role::Machine, root.clone())
            };
            assert!(!may_ask(&within, &question));
        }
        for question in of_administrators {
            assert!(!may_ask(&machine(Role::Machine, root.clone()), &question));
            assert!(may_ask(&administrator, &question));
        }
        for question in of_all {
            let nobody = machine(Role::Machine, limited[0].clone());
            assert!(may_ask(&nobody, &question));
        }
    }
}
