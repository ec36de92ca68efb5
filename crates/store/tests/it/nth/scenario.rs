//! The fixed scenarios: short histories in which every kind of change and every use of the disk
//! occurs. Each names what it is about.

use crate::world::*;
use ariel_store::{Keep, Options};
use wire::*;

/// One step of a scenario.
#[derive(Clone, Debug)]
pub enum Step {
    /// An operation, under an origin if it is to be kept apart from its repetition.
    Do(Op, Vec<u8>, Option<Origin>),
    OpenSession(SessionId),
    CloseSession(SessionId),
    WriteOut,
    Sync,
    Checkpoint,
    /// Everything is looked at, through every way to ask.
    Look,
    /// The store is closed in order and opened again.
    Close,
    /// The process ends without a word, the partition is checked and opened again.
    Fsck,
}

/// A history on a disk that something may be on already.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// The steps before, without failures; `None`: the partition does not exist.
    pub before: Option<Vec<Step>>,
    /// The end of these earlier steps.
    pub end: Keep,
    /// Opening, and these.
    pub steps: Vec<Step>,
    pub options: Options,
}

/// Segments and checkpoints so small that few operations fill them.
fn tiny() -> Options {
    Options {
        segment_bytes: 16 << 10,
        checkpoint_bytes: 64 << 10,
        checkpoint_ms: 0,
        // The engine looks at its file more often than into its cache.
        index_cache_bytes: 64 << 10,
        ..small()
    }
}

fn file(vnode: u64) -> Fid {
    Fid {
        volume: 1,
        vnode,
        uniq: 1,
    }
}

fn op(op: Op) -> Step {
    Step::Do(op, Vec::new(), None)
}

fn create(text: &str) -> Step {
    op(make_op(root(), text, Make::File, 0o644))
}

fn put(vnode: u64, offset: u64, len: usize) -> Step {
    let data = bytes(vnode * 1_000_003 + offset + len as u64, len);
    Step::Do(
        write_op(file(vnode), offset, &data, WriteMode::At),
        data,
        None,
    )
}

fn append(vnode: u64, len: usize, origin: Option<Origin>) -> Step {
    let data = bytes(vnode * 77 + len as u64, len);
    Step::Do(
        write_op(file(vnode), 0, &data, WriteMode::Append),
        data,
        origin,
    )
}

fn cut(vnode: u64, size: u64) -> Step {
    let set = Set {
        size: Some(size),
        ..Set::default()
    };
    op(Op::SetAttr {
        fid: file(vnode),
        set,
    })
}

fn unlink(text: &str) -> Step {
    op(Op::Unlink {
        dir: root(),
        name: name(text),
    })
}

fn rename((from, old): (Fid, &str), (to, new): (Fid, &str), exchange: bool) -> Step {
    op(Op::Rename {
        from,
        name: name(old),
        to,
        new: name(new),
        no_replace: false,
        exchange,
    })
}

/// A partition with a bit of everything, part of it in a checkpoint, part synced, part neither.
fn rich() -> Vec<Step> {
    vec![
        create("a"),
        put(2, 0, 9_000),
        create("b"),
        put(3, 0, 60),
        Step::Checkpoint,
        put(2, 4_000, 3_000),
        create("c"),
        put(4, 0, 5_000),
        Step::Sync,
        unlink("b"),
        create("d"),
        Step::Sync,
        put(2, 9_000, 4_000),
        put(4, 0, 2_000),
        Step::WriteOut,
        create("e"),
        Step::WriteOut,
        put(6, 0, 70),
        put(4, 2_000, 6_000),
        Step::WriteOut,
    ]
}

fn writes() -> Vec<Scenario> {
    let of = |name, before: Vec<Step>, steps: Vec<Step>| Scenario {
        name,
        before: Some(before),
        end: Keep::Written,
        steps,
        options: tiny(),
    };
    let small = vec![
        put(2, 0, 50),
        put(2, 30, 60),
        Step::WriteOut,
        append(3, 40, None),
        put(2, 80, 300),
        Step::Sync,
        put(2, 20, 10),
        Step::WriteOut,
        Step::Look,
        append(3, 90, None),
        Step::Sync,
    ];
    let large = vec![
        put(2, 0, 9_000),
        Step::WriteOut,
        put(2, 2_000, 5_000),
        Step::Sync,
        append(2, 12_000, None),
        put(2, 60_000, 3_000),
        Step::WriteOut,
        Step::Look,
        put(2, 8_000, 8_192),
        Step::Sync,
    ];
    let truncation = vec![
        cut(2, 3_000),
        Step::Sync,
        cut(2, 8_000),
        put(2, 7_000, 500),
        cut(3, 20),
        cut(3, 70),
        Step::Look,
        cut(2, 0),
        Step::Sync,
        cut(2, 9_000),
        Step::Look,
        Step::Sync,
    ];
    let two = vec![create("a"), create("b"), Step::WriteOut];
    let long = vec![
        create("a"),
        put(2, 0, 9_000),
        create("b"),
        put(3, 0, 60),
        Step::Sync,
    ];
    vec![
        of("small writes", two.clone(), small),
        of("large writes", two, large),
        of("truncation", long, truncation),
    ]
}

fn names() -> Scenario {
    let dir = file(2);
    let in_dir = op(make_op(dir, "x", Make::File, 0o600));
    let value = op(Op::SetXattr {
        fid: file(4),
        name: b"user.color".to_vec(),
        value: vec![7; 40],
        mode: XattrMode::Any,
    });
    let target = Make::Symlink(b"d/x".to_vec());
    let steps = vec![
        op(make_op(root(), "d", Make::Directory, 0o755)),
        in_dir,
        create("y"),
        Step::Sync,
        op(Op::Link {
            fid: file(4),
            dir,
            name: name("z"),
        }),
        rename((dir, "x"), (root(), "x"), false),
        Step::WriteOut,
        op(make_op(root(), "s", target, 0o777)),
        value,
        rename((root(), "y"), (root(), "x"), true),
        Step::Sync,
        Step::Look,
        rename((dir, "z"), (root(), "y"), false),
        op(Op::Reap { fid: file(3) }),
        op(Op::Rmdir {
            dir: root(),
            name: name("d"),
        }),
        Step::Sync,
        unlink("x"),
        Step::Look,
        Step::Sync,
    ];
    Scenario {
        name: "names",
        before: Some(Vec::new()),
        end: Keep::Written,
        steps,
        options: tiny(),
    }
}

fn sessions() -> Scenario {
    let by = |request| {
        Some(Origin {
            session: 5,
            request,
        })
    };
    let made = |request, text| {
        Step::Do(
            make_op(root(), text, Make::File, 0o644),
            Vec::new(),
            by(request),
        )
    };
    let steps = vec![
        Step::OpenSession(5),
        made(1, "a"),
        Step::Sync,
        made(1, "a"),
        append(2, 50, by(2)),
        Step::Checkpoint,
        append(2, 50, by(2)),
        append(2, 70, by(3)),
        Step::Sync,
        Step::Fsck,
        append(2, 70, by(3)),
        append(2, 30, by(4)),
        Step::Close,
        append(2, 30, by(4)),
        Step::OpenSession(6),
        Step::CloseSession(5),
        Step::Sync,
    ];
    Scenario {
        name: "sessions and repetitions",
        before: Some(Vec::new()),
        end: Keep::Written,
        steps,
        options: tiny(),
    }
}

fn checkpoints() -> Vec<Scenario> {
    let steps = vec![
        create("a"),
        put(2, 0, 3_000),
        Step::Checkpoint,
        put(2, 1_000, 60),
        unlink("a"),
        Step::Checkpoint,
        create("b"),
        op(Op::Reap { fid: file(2) }),
        put(3, 0, 4_000),
        Step::Sync,
        Step::Look,
        Step::Checkpoint,
    ];
    let checkpoint = Scenario {
        name: "checkpoint",
        before: Some(Vec::new()),
        end: Keep::Written,
        steps,
        options: tiny(),
    };
    let mut steps = vec![create("keep"), put(2, 0, 1_500), create("other")];
    for round in 0..8 {
        steps.push(put(3, 0, 5_000));
        steps.push(Step::WriteOut);
        steps.push(put(2, 1_500 + round * 700, 700));
        match round % 4 {
            1 => steps.push(Step::Sync),
            3 => steps.push(Step::Checkpoint),
            _ => {}
        }
    }
    steps.extend([put(3, 0, 5_000), Step::Look, Step::Sync]);
    let segments = Scenario {
        name: "segments and cleaning",
        before: Some(Vec::new()),
        end: Keep::Written,
        steps,
        options: tiny(),
    };
    vec![checkpoint, segments]
}

fn openings() -> Vec<Scenario> {
    let of = |name, end, steps: Vec<Step>| Scenario {
        name,
        before: Some(rich()),
        end,
        steps,
        options: tiny(),
    };
    let go_on = vec![Step::Look, create("f"), put(2, 100, 2_000), Step::Sync];
    vec![
        Scenario {
            name: "creation",
            before: None,
            end: Keep::Written,
            steps: vec![create("a"), Step::Sync],
            options: tiny(),
        },
        of("recovery after kill", Keep::Written, go_on.clone()),
        of("recovery, torn", Keep::Torn(70), go_on.clone()),
        of("recovery, out of order", Keep::Any(3), go_on),
        of("fsck", Keep::Torn(50), vec![Step::Fsck, Step::Look]),
        of(
            "orderly ends",
            Keep::Synced,
            vec![Step::Close, create("f"), Step::Close, Step::Look],
        ),
    ]
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    let mut all = openings();
    all.extend(writes());
    all.push(names());
    all.extend(checkpoints());
    all.push(sessions());
    all
}
