//! The records of which server has a store, in the cell's database; [`logic::placement`] decides
//! about them.

use crate::database::Changes;
use crate::members::{Cell, CellError, decode, encode, place};
use logic::placement::Placement;
use serde::{Deserialize, Serialize};

const STORES: &str = "stores";

/// A placement as it is written.
#[derive(Serialize, Deserialize)]
struct Record {
    server: String,
    turn: u64,
    leaving_to: Option<String>,
}

impl From<Record> for Placement {
    fn from(record: Record) -> Placement {
        Placement {
            server: record.server,
            turn: record.turn,
            leaving_to: record.leaving_to,
        }
    }
}

fn written(placement: &Placement) -> Result<Vec<u8>, CellError> {
    let Placement {
        server,
        turn,
        leaving_to,
    } = placement.clone();
    encode(&Record {
        server,
        turn,
        leaving_to,
    })
}

impl Cell {
    /// The place of a store; `None`: the cell has one server, or has never heard of the store.
    ///
    /// # Errors
    /// The database fails.
    pub fn placement(&self, store: u32) -> Result<Option<Placement>, CellError> {
        let bytes = self.database.get(&place(STORES, store))?;
        let record = bytes.as_deref().map(decode::<Record>).transpose()?;
        Ok(record.map(Placement::from))
    }

    /// Changes the place of a store from one to the next; none: it is new, or gone. False: it was
    /// another one, and nothing is changed.
    ///
    /// # Errors
    /// The database fails, and it is not known whether it was changed.
    pub fn place_store(
        &self,
        store: u32,
        before: Option<&Placement>,
        after: Option<&Placement>,
    ) -> Result<bool, CellError> {
        let at = place(STORES, store);
        let changes = Changes {
            when: vec![(at.clone(), before.map(written).transpose()?)],
            then: vec![(at, after.map(written).transpose()?)],
        };
        Ok(self.database.commit(&changes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of earlier versions are read, and theirs read what this one writes.
    #[test]
    fn a_record_is_written_as_it_always_was() {
        let made = Placement::made("a");
        let leaving = made.leave("a", "b").expect("it is there");
        for (placement, text) in [
            (made, r#"{"server":"a","turn":1,"leaving_to":null}"#),
            (leaving, r#"{"server":"a","turn":2,"leaving_to":"b"}"#),
        ] {
            assert_eq!(written(&placement).unwrap(), text.as_bytes());
            let record: Record = decode(text.as_bytes()).unwrap();
            assert_eq!(Placement::from(record), placement);
        }
    }
}
