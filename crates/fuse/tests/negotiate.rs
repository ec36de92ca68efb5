//! The agreements with kernels of different ages.
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_fuse::abi::{InitIn, MINOR, init};
use ariel_fuse::init::{Step, negotiate};
use ariel_fuse::{Feature, InitError, Options, Transport, Without};

/// A kernel that offers everything.
fn kernel(minor: u32) -> InitIn {
    InitIn {
        major: 7,
        minor,
        max_readahead: 128 << 10,
        flags: u32::MAX,
        flags2: u32::MAX,
        ..InitIn::default()
    }
}

fn agreed(offer: &InitIn) -> (ariel_fuse::abi::InitOut, ariel_fuse::Negotiated) {
    match negotiate(offer, &Options::default()) {
        Ok(Step::Agree(answer, negotiated)) => (answer, negotiated),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_would_break_exactness_is_never_asked_for() {
    let (answer, negotiated) = agreed(&kernel(45));
    for never in [
        init::ATOMIC_O_TRUNC,
        init::AUTO_INVAL_DATA,
        init::WRITEBACK_CACHE,
        init::EXPORT_SUPPORT,
        init::HAS_INODE_DAX,
        init::READDIRPLUS_AUTO,
        init::OVER_IO_URING,
        init::HAS_EXPIRE_ONLY,
    ] {
        assert!(!negotiated.has(never), "{never:#x}");
    }
    let both = u64::from(answer.flags) | u64::from(answer.flags2) << 32;
    assert_eq!(both, negotiated.flags);
    let wanted = init::EXPLICIT_INVAL_DATA
        | init::POSIX_LOCKS
        | init::FLOCK_LOCKS
        | init::HANDLE_KILLPRIV_V2
        | init::DIRECT_IO_ALLOW_MMAP
        | init::INIT_EXT
        | init::SETXATTR_EXT;
    assert!(negotiated.has(wanted) && negotiated.inc_epoch);
    assert_eq!(
        (answer.max_background, answer.congestion_threshold),
        (64, 48)
    );
    assert_eq!((answer.time_gran, answer.max_write), (1, 1 << 20));
    assert_eq!(
        u32::from(answer.max_pages) * rustix::param::page_size() as u32,
        1 << 20
    );
}

#[test]
fn pages_are_compared_by_time_only_where_that_is_asked_for() {
    let options = Options {
        auto_inval: true,
        ..Options::default()
    };
    let Ok(Step::Agree(_, negotiated)) = negotiate(&kernel(45), &options) else {
        panic!("refused");
    };
    assert!(negotiated.has(init::AUTO_INVAL_DATA) && !negotiated.has(init::EXPLICIT_INVAL_DATA));
}

#[test]
fn requests_come_over_io_uring_only_where_that_is_offered_and_prepared() {
    let uring = Options {
        transport: Transport::Uring,
        ..Options::default()
    };
    let asks = |offer: &InitIn| match negotiate(offer, &uring) {
        Ok(Step::Agree(_, negotiated)) => negotiated.has(init::OVER_IO_URING),
        other => panic!("{other:?}"),
    };
    let switched_off = InitIn {
        flags2: !((init::OVER_IO_URING >> 32) as u32),
        ..kernel(45)
    };
    assert!(asks(&kernel(45)) && !asks(&switched_off));
}

#[test]
fn what_is_masked_off_is_not_agreed_and_all_else_is() {
    let agreed = |without: Without| {
        let options = Options {
            without,
            transport: Transport::Uring,
            ..Options::default()
        };
        match negotiate(&kernel(45), &options) {
            Ok(Step::Agree(_, negotiated)) => negotiated,
            other => panic!("{other:?}"),
        }
    };
    for masked in Feature::ALL {
        let negotiated = agreed(Without::default().and(masked));
        for feature in Feature::ALL {
            assert_eq!(
                negotiated.uses(feature),
                feature != masked,
                "{feature:?}, {masked:?}"
            );
        }
    }
    let nothing = agreed("all".parse().unwrap());
    assert!(
        !Feature::ALL
            .into_iter()
            .any(|feature| nothing.uses(feature))
    );
    assert!(!nothing.dialect().setxattr_ext);
}

#[test]
fn old_kernels_get_what_they_know() {
    let old = InitIn {
        flags: !(init::INIT_EXT as u32),
        ..kernel(31)
    };
    let (answer, negotiated) = agreed(&old);
    assert_eq!((answer.minor, negotiated.kernel_minor), (31, 31));
    assert_eq!(answer.flags2, 0, "the second word is not valid there");
    assert!(!negotiated.inc_epoch);
    assert!(!agreed(&kernel(43)).1.inc_epoch && agreed(&kernel(44)).1.inc_epoch);
    assert_eq!(agreed(&kernel(99)).0.minor, MINOR);
}

#[test]
fn kernels_that_cannot_serve_are_refused_and_newer_majors_asked_again() {
    let options = Options::default();
    let too_old = negotiate(&kernel(30), &options).unwrap_err();
    assert!(too_old.to_string().contains("Linux 5.4"), "{too_old}");
    let lacks = InitIn {
        flags: !(init::EXPLICIT_INVAL_DATA as u32),
        ..kernel(45)
    };
    let missing = InitError::Lacks {
        missing: init::EXPLICIT_INVAL_DATA,
    };
    assert_eq!(negotiate(&lacks, &options).unwrap_err(), missing);
    let ahead = InitIn {
        major: 8,
        ..kernel(0)
    };
    assert!(matches!(negotiate(&ahead, &options), Ok(Step::AskAgain(out)) if out.major == 7));
}
