//! `ariel whoami`: as whom the server takes a user who asks through a mount.
//!
//! Guarantees: the rights are those that the server said last, of this mount; names and times are
//! those of the token that gave them.

use crate::membership::shown;
use cell::{Claimed, Given};
use serde_json::{Value, json};
use wire::Rights;

/// The things that a mount knows of a user.
pub(super) struct Seen {
    pub(super) uid: u32,
    /// The rights of the machine in the mount's session.
    pub(super) rights: Rights,
    /// His name in the cell, where the machine speaks for him.
    pub(super) name: Option<String>,
    /// The login of the machine.
    pub(super) login: Option<Given>,
    /// The token that he has shown to this mount.
    pub(super) presented: Option<Claimed>,
}

/// The same as JSON; `user` is null: he is nobody.
pub(super) fn answer(seen: &Seen) -> Value {
    let Seen { uid, rights, .. } = seen;
    if rights.trusted {
        let believed = rights.believes(*uid);
        let name = seen.name.clone().unwrap_or_else(|| uid.to_string());
        let user = believed.then_some(name);
        return json!({ "user": user, "uid": uid, "trusted": true });
    }
    let proven = rights.proven(*uid);
    match (proven, &seen.presented, &seen.login) {
        (None, ..) => json!({ "user": null, "uid": uid, "trusted": false }),
        (Some(proven), Some(token), _) if proven.session.is_some() => json!({
            "user": token.user,
            "uid": uid,
            "trusted": false,
            "expires": token.expires_s,
            "renewable": null,
            "mount_alone": true,
            "path": token.path,
            "read_only": token.read_only,
            "expired": proven.expired,
        }),
        (Some(proven), _, login) => json!({
            "user": login.as_ref().map_or_else(|| uid.to_string(), |it| it.user.clone()),
            "uid": uid,
            "trusted": false,
            "expires": login.as_ref().map(|it| it.expires_s),
            "renewable": login.as_ref().map(|it| it.renewable_s),
            "mount_alone": proven.session.is_some(),
            "path": null,
            "read_only": !proven.write,
            "expired": proven.expired,
        }),
    }
}

/// The answer as text; an error: he is nobody, and what makes him somebody.
pub(super) fn text(answer: &Value) -> Result<String, String> {
    let uid = &answer["uid"];
    let trusted = answer["trusted"].as_bool().unwrap_or(false);
    let Some(user) = answer["user"].as_str() else {
        return Err(match trusted {
            true => format!(
                "this machine does not speak for user {uid} in the cell, where he is nobody: an \
                 administrator says for whom it does (`ariel machine grant NAME --uids`, and \
                 --root for root)"
            ),
            false => "you are not logged in: `ariel login`".to_owned(),
        });
    };
    if trusted {
        return Ok(format!(
            "{user} (user {uid}): this machine is trusted, and speaks for its users without a login"
        ));
    }
    if answer["expired"] == true {
        return Err(format!(
            "you were logged in as {user}, and that has expired: `ariel login`"
        ));
    }
    let is = |word: &str| answer[word].as_bool().unwrap_or(false);
    let mut text = user.to_owned();
    if is("mount_alone") {
        text.push_str(", on this mount alone");
    }
    if let Some(path) = answer["path"].as_str() {
        text.push_str(&format!(", at and below {path}"));
    }
    if is("read_only") {
        text.push_str(", for reading");
    }
    let (expires, renewable) = (answer["expires"].as_u64(), answer["renewable"].as_u64());
    if let Some(expires) = expires {
        text.push_str(&format!(", until {}", shown(expires)));
    }
    match renewable.filter(|until| Some(*until) > expires) {
        Some(until) => text.push_str(&format!(", renewed until {}", shown(until))),
        None => text.push_str(", not renewed"),
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use wire::Proven;

    fn seen(trusted: bool) -> Seen {
        Seen {
            uid: 1001,
            rights: Rights {
                trusted,
                uids: vec![(1000, 1999)],
                ..Rights::default()
            },
            name: None,
            login: None,
            presented: None,
        }
    }

    #[test]
    fn a_trusted_machine_speaks_for_its_users() {
        let told = text(&answer(&seen(true))).unwrap();
        assert!(
            told.starts_with("1001 (user 1001): this machine is trusted"),
            "{told}"
        );
        let ann = Seen {
            name: Some("ann".into()),
            ..seen(true)
        };
        assert!(text(&answer(&ann)).unwrap().starts_with("ann (user 1001)"));
        for uid in [0, 7] {
            let other = Seen { uid, ..seen(true) };
            let told = text(&answer(&other)).unwrap_err();
            assert!(
                told.contains("machine grant") && !told.contains("login"),
                "{told}"
            );
        }
    }

    #[test]
    fn a_narrowed_token_is_told_as_narrow_as_it_is() {
        assert!(
            text(&answer(&seen(false)))
                .unwrap_err()
                .contains("`ariel login`")
        );
        let mut ann = seen(false);
        ann.login = Some(Given {
            token: String::new(),
            user: "ann".into(),
            expires_s: 4_000_000_000,
            renewable_s: 4_000_000_100,
        });
        let proven = Proven {
            uid: 1001,
            gid: 1001,
            groups: Vec::new(),
            session: None,
            write: true,
            under: None,
            expired: false,
        };
        ann.rights.users = vec![proven.clone()];
        let whole = text(&answer(&ann)).unwrap();
        assert!(
            whole.starts_with("ann, until") && whole.contains("renewed until"),
            "{whole}"
        );
        ann.presented = Some(Claimed {
            user: "ann".into(),
            expires_s: 3_900_000_000,
            path: Some("/jobs/7".into()),
            read_only: true,
        });
        // It was of an earlier session.
        assert_eq!(text(&answer(&ann)).unwrap(), whole);
        ann.rights.users[0] = Proven {
            session: Some(42),
            write: false,
            ..proven
        };
        let narrow = text(&answer(&ann)).unwrap();
        let told = "ann, on this mount alone, at and below /jobs/7, for reading, until ";
        assert!(
            narrow.starts_with(told) && narrow.ends_with(", not renewed"),
            "{narrow}"
        );
        ann.rights.users[0].expired = true;
        assert!(text(&answer(&ann)).unwrap_err().contains("has expired"));
    }
}
