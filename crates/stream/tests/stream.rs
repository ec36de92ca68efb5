//! Streams that are written and read: whole, cut anywhere, with any bit changed, of another
//! version.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use ariel_stream::{
    Chain, Compression, Next, Part, Reader, Resume, StreamError, Token, VERSION, Writer,
};
use wire::{Blob, Identity, Name, StreamChunk, StreamHead, StreamPiece, splitmix64};

fn identity(number: u32) -> Identity {
    Identity {
        partition: 0x0123_4567_89ab_cdef,
        number,
        made: 1_700_000_000_000_000_000,
    }
}

fn head() -> StreamHead {
    StreamHead {
        volume: identity(1),
        snapshot: identity(2),
        name: Name::new(b"monday").unwrap(),
        since: None,
        objects: 3,
        bytes: 5,
    }
}

fn part(nth: u64, bytes: &[u8]) -> Part {
    let piece = StreamPiece::Bytes {
        vnode: nth,
        offset: 0,
        len: bytes.len() as u32,
        inline: false,
    };
    Part {
        after: Blob(nth.to_le_bytes().to_vec()),
        chunk: StreamChunk {
            pieces: vec![piece],
            bytes: Blob(bytes.to_vec()),
        },
        groups: vec![(0x7000_0000 + nth as u32, b"staff".to_vec())],
    }
}

fn parts() -> Vec<Part> {
    vec![part(7, b"hello"), part(8, &[b'a'; 5000]), Part::default()]
}

fn written(compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &head(), None, compression).unwrap();
    for part in parts() {
        writer.part(&part).unwrap();
    }
    writer.end().unwrap()
}

/// All parts, and what comes behind them.
fn read(bytes: &[u8]) -> (Vec<Part>, Result<(), StreamError>) {
    let mut parts = Vec::new();
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (parts, Err(error)),
    };
    loop {
        match reader.next() {
            Ok(Next::Part(part)) => parts.push(part),
            Ok(Next::End) => return (parts, Ok(())),
            Err(error) => return (parts, Err(error)),
        }
    }
}

#[test]
fn a_stream_comes_back_compressed_or_not() {
    let (plain, packed) = (written(Compression::None), written(Compression::Level(3)));
    assert!(
        packed.len() < plain.len() / 2,
        "{} {}",
        packed.len(),
        plain.len()
    );
    for bytes in [plain, packed] {
        let (got, end) = read(&bytes);
        assert_eq!(got, parts());
        end.unwrap();
        assert_eq!(*Reader::new(&bytes[..]).unwrap().head(), head());
    }
}

#[test]
fn a_stream_that_is_cut_is_never_taken_for_a_whole_one() {
    let bytes = written(Compression::Level(3));
    for len in 0..bytes.len() {
        let (got, end) = read(&bytes[..len]);
        assert!(got.len() <= parts().len() && got == parts()[..got.len()]);
        let cut = matches!(
            end,
            Err(StreamError::Truncated { .. } | StreamError::NotAStream)
        );
        assert!(cut, "{len} bytes of it");
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let bytes = written(Compression::Level(3));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << bit;
            let (got, end) = read(&wrong);
            assert!(end.is_err(), "bit {bit} of byte {at}");
            assert!(got == parts()[..got.len()], "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn parts_in_another_order_or_of_another_stream_are_noticed() {
    let written = |order: &[usize]| {
        let mut writer = Writer::new(Vec::new(), &head(), None, Compression::None).unwrap();
        for at in order {
            writer.part(&parts()[*at]).unwrap();
        }
        writer.end().unwrap()
    };
    let (one, other) = (written(&[0, 1]), written(&[1, 1]));
    // The second part of one behind the first one of the other.
    let at = one.iter().zip(&other).position(|(a, b)| a != b).unwrap();
    let long = other.len() - one.len();
    let mixed = [&other[..at + 5000], &one[at + 5000 - long..]].concat();
    assert!(read(&mixed).1.is_err());
}

#[test]
fn what_cannot_be_read_says_what_helps() {
    let said = |bytes: &[u8]| read(bytes).1.unwrap_err().to_string();
    let bytes = written(Compression::None);
    assert!(said(b"hello, this is a text").contains("not a stream of a volume"));
    assert!(said(b"").contains("`ariel volume send`"));
    let mut newer = bytes.clone();
    newer[8] = VERSION as u8 + 1;
    assert!(said(&newer).contains("with a newer ariel"));
    assert!(said(&bytes[..bytes.len() - 1]).contains("ends in the middle, behind part 3"));
    let mut wrong = bytes.clone();
    let at = bytes.windows(5).position(|five| five == b"hello").unwrap();
    wrong[at] ^= 1;
    assert!(said(&wrong).contains("damaged in part 1: its checksum is wrong"));
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let good = written(Compression::Level(3));
    let mut seed = 5;
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..splitmix64(&mut seed) % 6 + 1 {
            let at = splitmix64(&mut seed) as usize % bytes.len();
            bytes[at] = splitmix64(&mut seed) as u8;
        }
        let (got, _) = read(&bytes);
        assert!(got.len() <= parts().len());
    }
}

#[test]
fn a_stream_goes_on_where_a_token_says() {
    let bytes = written(Compression::None);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let Next::Part(first) = reader.next().unwrap() else {
        panic!("no part");
    };
    let Resume {
        parts: count,
        chain,
    } = reader.at().clone();
    let token = Token {
        snapshot: identity(2),
        since: Some(identity(1)),
        parts: count,
        chain,
        after: first.after,
    };
    let word = token.to_string();
    assert_eq!(word.parse::<Token>(), Ok(token.clone()));
    for wrong in [&word[1..], &word[..word.len() - 2], "zz", "", "0"] {
        assert!(wrong.parse::<Token>().is_err(), "{wrong}");
    }
    let from = Resume {
        parts: token.parts,
        chain: token.chain,
    };
    let none = Compression::None;
    let mut writer = Writer::new(Vec::new(), &head(), Some(from), none).unwrap();
    for part in &parts()[1..] {
        writer.part(part).unwrap();
    }
    let rest = writer.end().unwrap();
    let (got, end) = read(&rest);
    assert_eq!(got, parts()[1..]);
    end.unwrap();
    // Both end with the same hash, since it is of the whole.
    let last = |bytes: &[u8]| bytes[bytes.len() - 32..].to_vec();
    assert_eq!(last(&rest), last(&bytes));
}

/// The bytes of each version, so that later programs go on reading it.
#[test]
fn streams_of_each_version_are_read_as_they_were_written() {
    let nameless = Part {
        groups: Vec::new(),
        ..part(7, b"hello")
    };
    let (one, two) = (include_str!("version_1.hex"), include_str!("version_2.hex"));
    let mut writer = Writer::new(Vec::new(), &head(), None, Compression::None).unwrap();
    writer.part(&part(7, b"hello")).unwrap();
    let bytes = writer.end().unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, two.trim(), "the version that is written");
    for (hex, expected) in [(one, nameless), (two, part(7, b"hello"))] {
        let digits = hex.trim().as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = digits.map(byte).collect();
        let (got, end) = read(&bytes);
        assert_eq!(got, [expected]);
        end.unwrap();
        let begin = Reader::new(&bytes[..]).unwrap().at().chain;
        assert_ne!(Chain::default(), begin);
    }
}
