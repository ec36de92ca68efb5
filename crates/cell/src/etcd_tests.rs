//! The database in a real etcd, and two servers that share it.
#![allow(clippy::unwrap_used)]

use super::Etcd;
use super::process::{Began, Process, READY};

use crate::database::{Changes, Database, DatabaseError, Place};
use crate::groups::GroupDeed;
use crate::machine::Role;
use crate::members::LIFE_S;
use crate::question::{Answer, Invite, Question};
use crate::test_cell::machine;
use crate::user::User;
use crate::{Cell, CellDoor, CellError, Change, Credential, Location};
use net::{Door, KeyPrint};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use wire::Rights;

fn place(key: &str) -> Place {
    Place {
        table: "t",
        key: key.to_owned(),
    }
}

#[test]
fn changes_are_made_together_only_as_expected_and_seen_by_all() {
    let Some(process) = Process::start("changes") else {
        return;
    };
    let (one, other) = (process.database("a"), process.database("a"));
    assert_eq!(one.list("t").unwrap(), []);
    assert_eq!(one.get(&place("a")).unwrap(), None);
    let both = Changes {
        when: vec![(place("a"), None)],
        then: vec![
            (place("a"), Some(vec![0, 255, 10])),
            (place("b"), Some(b"2".to_vec())),
        ],
    };
    assert!(one.commit(&both).unwrap());
    assert!(!other.commit(&both).unwrap(), "a is there");
    let swap = Changes {
        when: vec![(place("a"), Some(vec![0, 255, 10])), (place("c"), None)],
        then: vec![(place("a"), None), (place("c"), Some(b"3".to_vec()))],
    };
    assert!(other.commit(&swap).unwrap());
    assert!(!one.commit(&swap).unwrap());
    let left = [
        ("b".to_owned(), b"2".to_vec()),
        ("c".to_owned(), b"3".to_vec()),
    ];
    assert_eq!(one.list("t").unwrap(), left);
    assert_eq!(process.database("aa").list("t").unwrap(), []);
    let many = Changes {
        when: Vec::new(),
        then: (0..200).map(|n| (place(&n.to_string()), None)).collect(),
    };
    let error = one.commit(&many).unwrap_err().to_string();
    assert!(error.contains("200 records"), "{error}");
}

#[test]
fn a_waiter_hears_of_a_change_and_of_none() {
    let Some(process) = Process::start("waits") else {
        return;
    };
    let (one, other) = (process.database("a"), process.database("a"));
    let short = Duration::from_millis(300);
    let began = Began::now();
    assert_eq!(one.wait_changed(&place("x"), None, short).unwrap(), None);
    assert!(began.elapsed() >= short, "{:?}", began.elapsed());
    let waited = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| one.wait_changed(&place("x"), None, READY));
        let changes = Changes {
            when: Vec::new(),
            then: vec![(place("x"), Some(b"1".to_vec()))],
        };
        other.commit(&changes).unwrap();
        waiter.join().unwrap()
    });
    assert_eq!(waited.unwrap(), Some(b"1".to_vec()));
    assert!(began.elapsed() < READY, "{:?}", began.elapsed());
}

fn administrator(dir: &Path) -> KeyPrint {
    let dir = Cell::credentials(dir, Role::Administrator);
    let credential = Credential::read(&dir).unwrap().unwrap();
    net::print_of_pem(&credential.certificate).unwrap()
}

fn ask(door: &CellDoor, key: KeyPrint, question: &Question) -> Answer {
    let question = serde_json::to_vec(question).unwrap();
    serde_json::from_slice(&door.answer(Some(key), &question)).unwrap()
}

fn user(name: &str, uid: u32) -> Question {
    let user = User {
        name: name.into(),
        uid,
        gid: uid,
        groups: vec![],
        keys: vec![],
        password: false,
    };
    Question::SetUser {
        user,
        password: None,
        new: true,
    }
}

/// Ends what follows for a server, also when the test fails.
struct Following<'a>(&'a CellDoor);

impl Drop for Following<'_> {
    fn drop(&mut self) {
        self.0.stop_following();
    }
}

/// Has a server follow the others while something is done at one of them.
fn following<T>(door: &CellDoor, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(|| while door.follow_next() {});
        let _following = Following(door);
        work()
    })
}

#[test]
fn a_change_at_one_server_is_in_force_at_the_other_when_it_is_answered() {
    let Some(process) = Process::start("in-force") else {
        return;
    };
    let (dir, one) = process.server("one");
    let (_, other) = process.server("other");
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    other.tell(Box::new(move |id, (change, _)| {
        heard.lock().unwrap().push((id, change == Change::Revoked));
        Ok(())
    }));
    // It cannot put groups in force at first: what failed is done again.
    let groups = Arc::new(Mutex::new(0));
    let regrouped = Arc::clone(&groups);
    other.tell_groups(Box::new(move |_| {
        let mut tries = regrouped.lock().unwrap();
        *tries += 1;
        match *tries {
            1 => Err("not yet".into()),
            _ => Ok(()),
        }
    }));
    let key = administrator(&dir);
    following(&other, || {
        // Past what the other one changed when it joined.
        one.follow().unwrap();
        let build = machine(one.cell(), "build", true);
        let name = "build".to_owned();
        assert!(matches!(
            ask(&one, key, &Question::Revoke { name }),
            Answer::Done(_)
        ));
        assert_eq!(*told.lock().unwrap().last().unwrap(), (build.id, true));
        assert!(other.cell().machine(build.id).unwrap().revoked_s.is_some());
        assert!(matches!(ask(&one, key, &user("ann", 1001)), Answer::Ok));
        for deed in [
            GroupDeed::Create { name: "all".into() },
            GroupDeed::Change {
                name: "all".into(),
                member: "ann".into(),
                uid: None,
                add: true,
            },
        ] {
            let (uid, mount) = (0, None);
            let question = Question::Groups { uid, mount, deed };
            let answer = ask(&one, key, &question);
            assert!(matches!(answer, Answer::Ok), "{answer:?}");
        }
        assert!(*groups.lock().unwrap() >= 2);
        assert_eq!(other.cell().group_members(), one.cell().group_members());
    });
    // It has ended, and nothing waits for it.
    let lines = one.cell().servers().unwrap();
    assert_eq!(lines[1].name, "other");
    assert_eq!(lines[1].addresses, None);
    assert!(matches!(ask(&one, key, &user("bob", 1002)), Answer::Ok));
}

#[test]
fn two_servers_that_decide_at_once_decide_as_one() {
    let Some(process) = Process::start("at-once") else {
        return;
    };
    let (dir, one) = process.server("one");
    let (far, other) = process.server("other");
    let (key, far_key) = (administrator(&dir), administrator(&far));
    // Each follows the other only when its own decision was outdated.
    one.stop_following();
    other.stop_following();
    let doors = [(&one, key), (&other, far_key)];
    let made: usize = std::thread::scope(|scope| {
        let tries = doors.map(|(door, key)| {
            scope.spawn(move || {
                // Both want all numbers: each number has one user in the end.
                let names = (1000..1020).map(|uid| (format!("u{uid}"), uid));
                names
                    .filter(|(name, uid)| matches!(ask(door, key, &user(name, *uid)), Answer::Ok))
                    .count()
            })
        });
        tries.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(made, 20);
    let users = match ask(
        &one,
        key,
        &Question::RemoveUser {
            name: "u1000".into(),
        },
    ) {
        Answer::Ok => one.cell().users(),
        other => panic!("{other:?}"),
    };
    assert_eq!(users.len(), 19);
    // The other server decides again when its knowledge was outdated: he is gone.
    let again = ask(
        &other,
        far_key,
        &Question::RemoveUser {
            name: "u1000".into(),
        },
    );
    assert!(
        matches!(&again, Answer::Refused(why) if why.contains("u1000")),
        "{again:?}"
    );
    // A line that is for one machine lets one in, wherever it is shown.
    let invite = Invite {
        uses: 1,
        for_s: 60,
        role: Role::Machine,
        rights: Rights::default(),
    };
    let (secret, _) = one.cell().invite(&invite, &[]).unwrap();
    let joined = doors.iter().enumerate().filter(|(at, (door, key))| {
        let question = Question::Join {
            secret: secret.clone(),
            name: format!("m{at}"),
            key: crate::authority::new_key().unwrap().1,
        };
        matches!(ask(door, *key, &question), Answer::Certified(_))
    });
    assert_eq!(joined.count(), 1);
}

#[test]
fn a_database_with_tls_or_without_is_named_as_it_is() {
    let (Some(plain), Some(secured)) = (
        Process::start("no-tls"),
        Process::start_with("tls", "https"),
    ) else {
        return;
    };
    let another = rcgen::generate_simple_self_signed(["another".to_owned()]).unwrap();
    let ca = plain.dir.path().join("ca.pem");
    std::fs::write(&ca, another.cert.pem()).unwrap();
    let none = Etcd::new(plain.secured(None)).err().unwrap().to_string();
    assert!(
        none.contains("--database-ca") && !none.contains("disk"),
        "{none}"
    );
    let told = |database: Etcd| database.list("t").unwrap_err().to_string();
    for (told, cure) in [
        (
            told(Etcd::new(plain.secured(Some(&ca))).unwrap()),
            "name it etcd://",
        ),
        (told(secured.database("probe")), "name it etcds://"),
        (
            told(Etcd::new(secured.secured(Some(&ca))).unwrap()),
            "none of the authorities",
        ),
    ] {
        let known = told.contains(cure) && told.contains("cannot be asked");
        assert!(known, "{told}");
    }
}

#[test]
fn without_its_database_a_server_goes_on_with_what_it_knows() {
    let Some(mut process) = Process::start("away") else {
        return;
    };
    let (dir, one) = process.server("one");
    let key = administrator(&dir);
    let build = machine(one.cell(), "build", true);
    process.kill();
    let began = Began::now();
    let refused = ask(&one, key, &user("ann", 1001));
    let cure = |why: &str| why.contains("does not answer") && why.contains("see to etcd");
    assert!(
        matches!(&refused, Answer::Refused(why) if cure(why)),
        "{refused:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(15));
    assert!(one.cell().machine(build.id).is_some());
    assert!(one.rights(build.id).trusted);
    let error = one.cell().servers().unwrap_err();
    assert!(matches!(
        error,
        CellError::Database(DatabaseError::Shared { .. })
    ));
    // It comes back, and the cell with it.
    process.start_again();
    assert!(matches!(ask(&one, key, &user("ann", 1001)), Answer::Ok));
    drop(one);
    let again = CellDoor::open(&dir, LIFE_S).unwrap();
    assert_eq!(again.cell().users().len(), 1);
    assert!(again.cell().machine(build.id).is_some());
}

#[test]
fn a_cell_is_made_once_and_joined_under_names_of_its_own() {
    let Some(process) = Process::start("made-once") else {
        return;
    };
    let dir = process.dir.path().join("none");
    let error = Cell::join_shared(&dir, &process.location("cell"), "a").unwrap_err();
    assert!(error.to_string().contains("has no cell"), "{error}");
    let (_, one) = process.server("one");
    let error = Cell::make_shared(&dir, &process.location("cell"), "a").unwrap_err();
    assert!(error.to_string().contains("--join"), "{error}");
    let location = process.location("cell");
    let error = Cell::join_shared(&dir, &location, "b").unwrap_err();
    assert!(error.to_string().contains("empty directory"), "{error}");
    let number = Cell::number_server(&location).unwrap();
    assert_eq!(Cell::number_server(&location).unwrap(), number + 1);
    let location = Location { number, ..location };
    let error = Cell::join_shared(&dir, &location, "b").unwrap_err();
    assert!(error.to_string().contains("server one already"), "{error}");
    let location = Location {
        server: "two".into(),
        ..location
    };
    let error = Cell::join_shared(&dir, &location, "one").unwrap_err();
    assert!(error.to_string().contains("machine one already"), "{error}");
    Cell::join_shared(&dir, &location, "two").unwrap();
    assert!(matches!(
        Cell::join_shared(&dir, &location, "two"),
        Err(CellError::Exists(_))
    ));
    let lines = one.cell().servers().unwrap();
    let numbers: Vec<u32> = lines.iter().map(|line| line.number).collect();
    assert_eq!(numbers, [0, number]);
    let (third, location) = (
        dir.with_extension("third"),
        Location {
            server: "three".into(),
            ..location
        },
    );
    let error = Cell::join_shared(&third, &location, "three").unwrap_err();
    assert!(error.to_string().contains("empty directory"), "{error}");
}
