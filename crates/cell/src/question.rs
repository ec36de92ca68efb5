//! The questions to a cell over a connection of its own, and the answers.

use crate::authority::{AuthorityError, new_key};
use crate::credential::{Credential, CredentialError};
use crate::groups::{Group, GroupDeed};
use crate::line::JoinLine;
use crate::machine::{Machine, Role};
use crate::revision::ServerLine;
use crate::stores::{StoreAnswer, StoreQuestion};
use crate::user::{Proof, User};
use crate::words::hex;
use net::{Addresses, ClientTls};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::Rights;

/// The uses, the time and the rights of a new line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// So many machines may join with it.
    pub uses: u32,
    /// For so long.
    pub for_s: u64,
    /// As what.
    pub role: Role,
    /// With these rights.
    pub rights: Rights,
}

/// A question.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// A machine that has a line wants a certificate.
    Join {
        /// The line's secret, in hexadecimal.
        secret: String,
        /// How the machine is to be called.
        name: String,
        /// Its public key, in hexadecimal.
        key: String,
    },
    /// A machine wants another certificate, for this key.
    Renew {
        /// Its public key, in hexadecimal.
        key: String,
    },
    /// An administrator wants a line.
    Invite(Invite),
    /// An administrator wants to see the machines.
    Machines,
    /// A machine or an administrator wants to see the servers.
    Servers,
    /// An administrator says that a server will never come back.
    ForgetServer {
        /// Its name.
        name: String,
    },
    /// An administrator takes everything from a machine.
    Revoke {
        /// Its name.
        name: String,
    },
    /// An administrator gives a machine these rights, and no others.
    Grant {
        /// Its name.
        name: String,
        /// The rights.
        rights: Rights,
    },
    /// An administrator's grant, or invitation, is limited to these parts of the tree. This stands
    /// around the question, so that a server which does not know parts does not grant all.
    Limited {
        /// Volumes and paths, as `ariel machine grant --only` takes them.
        parts: Vec<String>,
        /// A grant, or an invitation.
        question: Box<Question>,
    },
    /// An administrator makes a user, or gives one that is there another group, other keys or
    /// another password.
    SetUser {
        /// The user.
        user: User,
        /// His password; none: he keeps his, if he has one.
        password: Option<String>,
        /// He must not be there, or must be.
        new: bool,
    },
    /// An administrator wants to see the users.
    Users,
    /// An administrator takes everything from a user.
    RemoveUser {
        /// His name.
        name: String,
    },
    /// A machine wants something that a user signs.
    Challenge,
    /// A machine wants a token for a user who proves who he is.
    Login {
        /// His name.
        user: String,
        /// His number on that machine.
        uid: u32,
        /// The proof.
        proof: Proof,
        /// The token is to count for so long,
        for_s: u64,
        /// and not to be renewed.
        once: bool,
    },
    /// A machine shows a token: its user may ask in this session, or in all of the machine's.
    Present {
        /// The token.
        token: String,
        /// The user's number on that machine.
        uid: u32,
        /// The session.
        session: Option<u64>,
    },
    /// A machine wants a token that counts for longer, for one that still counts.
    Extend {
        /// The token.
        token: String,
    },
    /// A machine's user, or an administrator, does something with groups.
    Groups {
        /// The user's number on that machine.
        uid: u32,
        /// The name of the mount through which he asks, if he does.
        #[serde(default)]
        mount: Option<String>,
        /// What.
        deed: GroupDeed,
    },
    /// A machine's user, or an administrator, wants to see the names of the users.
    Names {
        /// The user's number on that machine.
        uid: u32,
    },
    /// A mount has ended for good: what users have given up there is as it was.
    Unmounted {
        /// The mount's name.
        mount: String,
    },
    /// About the stores of the server that is asked.
    Stores(StoreQuestion),
    /// A machine says that a user has left.
    Logout {
        /// The user's number on that machine.
        uid: u32,
    },
}

/// A token that was given.
#[derive(Clone, Serialize, Deserialize)]
pub struct Given {
    /// The token.
    pub token: String,
    /// The user's name.
    pub user: String,
    /// Until when it counts, seconds since 1970.
    pub expires_s: u64,
    /// Until when it is renewed.
    pub renewable_s: u64,
}

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a token of {} until {}", self.user, self.expires_s)
    }
}

/// A certificate, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certified {
    /// The cell.
    pub cell: String,
    /// The machine's name.
    pub name: String,
    /// Its purpose.
    pub role: Role,
    /// When it was made, and until when it counts, seconds since 1970.
    pub life_s: (u64, u64),
    /// The authority's certificate.
    pub authority: String,
    /// The machine's certificate.
    pub certificate: String,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// A certificate.
    Certified(Certified),
    /// The secret of a new line, in hexadecimal, and until when it counts.
    Invited {
        /// The secret.
        secret: String,
        /// Seconds since 1970.
        expires_s: u64,
    },
    /// The machines.
    Machines(Vec<Machine>),
    /// The servers.
    Servers(Vec<ServerLine>),
    /// It is done; the machine as it is now.
    Done(Machine),
    /// The users.
    Users(Vec<User>),
    /// The numbers of the users, by their names.
    Names(BTreeMap<String, u32>),
    /// The groups.
    Groups(Vec<Group>),
    /// The bytes to sign, and the name under which the cell knows the machine that asks.
    Challenge {
        /// Random.
        challenge: String,
        /// The machine.
        machine: String,
    },
    /// A token.
    Given(Given),
    /// About the server's stores.
    Stores(StoreAnswer),
    /// It is done.
    Ok,
    /// It is not done, and why.
    Refused(String),
}

/// Why a question got no answer of use.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The server was not reached, or is not trusted.
    #[error("no connection to {0}: {1}")]
    Unreached(Addresses, String),
    /// The server refused.
    #[error("{0}")]
    Refused(String),
    /// The server answered something else.
    #[error("the server answered something else: use the same version of Ariel on both sides")]
    Strange,
    /// No key could be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The credential could not be kept.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

/// Asks the server at `servers`.
///
/// # Errors
/// It is not reached, or refuses.
pub fn ask(servers: &Addresses, tls: &ClientTls, question: &Question) -> Result<Answer, AskError> {
    let text = serde_json::to_vec(question).map_err(|_| AskError::Strange)?;
    let answer = net::ask(servers, tls, &text);
    let answer = answer.map_err(|error| AskError::Unreached(servers.clone(), error))?;
    match serde_json::from_slice(&answer).map_err(|_| AskError::Strange)? {
        Answer::Refused(why) => Err(AskError::Refused(why)),
        answer => Ok(answer),
    }
}

fn credential(answer: Answer, key: String, servers: &Addresses) -> Result<Credential, AskError> {
    let Answer::Certified(certified) = answer else {
        return Err(AskError::Strange);
    };
    Ok(Credential {
        cell: certified.cell,
        name: certified.name,
        role: certified.role,
        servers: Some(servers.to_string()),
        life_s: certified.life_s,
        authority: certified.authority,
        certificate: certified.certificate,
        key,
    })
}

/// Joins the cell of a line: the secret is sent only to a server that the line's authority has
/// certified.
///
/// # Errors
/// The server is not reached, is another cell's, or refuses the line.
pub fn join(line: &JoinLine, name: &str) -> Result<Credential, AskError> {
    let tls = ClientTls::pinned(line.authority).map_err(|_| AskError::Strange)?;
    let (key, public) = new_key()?;
    let question = Question::Join {
        secret: hex(&line.secret),
        name: name.to_owned(),
        key: public,
    };
    credential(ask(&line.servers, &tls, &question)?, key, &line.servers)
}

/// Another certificate of the same machine, for a new key.
pub(crate) fn renew(old: &Credential, servers: &Addresses) -> Result<Credential, AskError> {
    let tls = old.tls().map_err(AskError::Refused)?;
    let (key, public) = new_key()?;
    let answer = ask(servers, &tls, &Question::Renew { key: public })?;
    let mut new = credential(answer, key, servers)?;
    new.servers.clone_from(&old.servers);
    Ok(new)
}
