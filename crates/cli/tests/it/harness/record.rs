//! Records that can be judged: 64 bytes that name their writer and their order, and show whether
//! they are whole.

/// Bytes of a record.
pub const LEN: usize = 64;

/// Its writer, and its number among the writer's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub writer: u32,
    pub counter: u32,
}

/// FNV-1a: enough to tell a whole record from a mixture of two.
pub fn sum(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Record {
    pub fn encode(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&self.writer.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.counter.to_le_bytes());
        let fill = super::Random(u64::from(self.writer) << 32 | u64::from(self.counter)).bytes(48);
        bytes[8..56].copy_from_slice(&fill);
        let sum = sum(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None`: not one whole record.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let record = Self {
            writer: number(0)?,
            counter: number(4)?,
        };
        (record.encode() == bytes).then_some(record)
    }
}

#[test]
fn a_record_mixed_from_two_is_noticed() {
    let one = Record {
        writer: 1,
        counter: 7,
    }
    .encode();
    let mut mixed = Record {
        writer: 2,
        counter: 7,
    }
    .encode();
    assert_eq!(
        Record::decode(&one),
        Some(Record {
            writer: 1,
            counter: 7
        })
    );
    mixed[32..].copy_from_slice(&one[32..]);
    assert_eq!(Record::decode(&mixed), None);
    assert_eq!(Record::decode(&[0; LEN]), None);
}
