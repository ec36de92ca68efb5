//! The questions to a cell as the audit log and the door take them: each kind has its word, without
//! a secret, and is an administrator's or not. A new kind does not compile until both are said.

use crate::groups::GroupDeed;
use crate::question::Question;
use serde_json::{Value, json};

impl Question {
    /// Is it an administrator's?
    pub(crate) fn is_administrators(&self) -> bool {
        match self {
            Self::Join { .. }
            | Self::Renew { .. }
            | Self::Challenge
            | Self::Login { .. }
            | Self::Present { .. }
            | Self::Extend { .. }
            | Self::Groups { .. }
            | Self::Names { .. }
            | Self::Servers
            | Self::Unmounted { .. }
            | Self::Stores(_)
            | Self::Logout { .. } => false,
            Self::Invite(_)
            | Self::Machines
            | Self::ForgetServer { .. }
            | Self::Revoke { .. }
            | Self::Grant { .. }
            | Self::Limited { .. }
            | Self::SetUser { .. }
            | Self::Users
            | Self::RemoveUser { .. } => true,
        }
    }

    /// It, without secrets.
    pub(crate) fn noted(&self) -> Value {
        match self {
            Self::Join { name, .. } => json!({ "join": name }),
            Self::Renew { .. } => json!("renew"),
            Self::Invite(invite) => json!({ "invite": invite }),
            Self::Machines => json!("machines"),
            Self::Servers => json!("servers"),
            Self::ForgetServer { name } => json!({ "forget-server": name }),
            Self::Revoke { name } => json!({ "revoke": name }),
            Self::Grant { name, rights } => json!({ "grant": name, "rights": rights }),
            Self::Limited { parts, question } => {
                json!({ "only": parts, "of": question.noted() })
            }
            Self::SetUser { user, password, .. } => {
                json!({ "user": user, "password": password.is_some() })
            }
            Self::Users => json!("users"),
            Self::RemoveUser { name } => json!({ "remove-user": name }),
            Self::Challenge => json!("challenge"),
            Self::Login { user, uid, .. } => json!({ "login": user, "uid": uid }),
            Self::Present { uid, session, .. } => json!({ "present": uid, "session": session }),
            Self::Extend { .. } => json!("extend"),
            Self::Groups {
                deed: GroupDeed::List,
                ..
            } => json!("groups"),
            Self::Groups { uid, mount, deed } => {
                json!({ "groups": deed, "uid": uid, "mount": mount })
            }
            Self::Names { .. } => json!("names"),
            Self::Unmounted { mount } => json!({ "unmounted": mount }),
            Self::Stores(question) => question.noted().unwrap_or_else(|| json!("stores")),
            Self::Logout { uid } => json!({ "logout": uid }),
        }
    }
}
