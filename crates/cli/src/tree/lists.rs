//! Access lists in streams of volumes: the groups of a cell that they name are numbers, which mean
//! nothing in another cell, so their names travel and are looked for where the volume is received.
//!
//! Guarantees: no number of a group comes into another cell, so a list never names a group that its
//! sender has not named; entries of groups that are not known there are left out and told, and one
//! that takes rights away is never left out in silence: it stops the receipt, which goes on later.

use crate::args::AtArgs;
use crate::failure::Failure;
use crate::trust;
use access::{Entry, List, Who, is_group};
use cell::{Answer, Credential, GroupDeed, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use stream::Part;
use wire::{ACCESS_LIST, Blob, StreamChunk, StreamPiece};

/// The groups of the cell at a server, by number and name. Where nobody has to prove anything there
/// is no cell, and are no groups.
fn groups_at(what: &str, at: &AtArgs) -> Result<Vec<(u32, String)>, Failure> {
    let (_, dir) = trust::server(what, &at.server, &at.trust)?;
    let Some(dir) = dir else {
        return Ok(Vec::new());
    };
    let failed = |error: &dyn std::fmt::Display| Failure::of(what, error);
    let credential = Credential::read(&dir).map_err(|error| failed(&error))?;
    let credential = credential.ok_or_else(|| failed(&"this machine's certificate is gone"))?;
    let tls = credential.tls().map_err(|error| failed(&error))?;
    let (uid, mount, deed) = (0, None, GroupDeed::List);
    let question = Question::Groups { uid, mount, deed };
    match cell::ask(&at.server, &tls, &question).map_err(|error| failed(&error))? {
        Answer::Groups(groups) => Ok(groups.into_iter().map(|it| (it.gid, it.name)).collect()),
        _ => Err(failed(&cell::AskError::Strange)),
    }
}

/// The lists in a part.
fn lists(chunk: &mut StreamChunk) -> impl Iterator<Item = (&mut Option<Blob>, List)> {
    chunk.pieces.iter_mut().filter_map(|piece| match piece {
        StreamPiece::Xattr { name, value, .. } if name == ACCESS_LIST => {
            let list = List::decode(&value.as_ref()?.0)?;
            Some((value, list))
        }
        _ => None,
    })
}

/// The groups of the cell that a list names.
fn groups_of(list: &List) -> impl Iterator<Item = u32> {
    list.entries().filter_map(|entry| match entry.who {
        Who::Group(gid) if is_group(gid) => Some(gid),
        _ => None,
    })
}

/// The sender's side.
pub(super) struct SenderGroups<'a> {
    at: &'a AtArgs,
    /// Asked for when a list names the first one.
    known: Option<BTreeMap<u32, String>>,
}

impl<'a> SenderGroups<'a> {
    pub(super) fn new(at: &'a AtArgs) -> Self {
        Self { at, known: None }
    }

    /// The names of the groups in a part. A group that is gone has none, and names nobody.
    pub(super) fn named_in(
        &mut self,
        chunk: &mut StreamChunk,
    ) -> Result<Vec<(u32, Vec<u8>)>, Failure> {
        let named: BTreeSet<u32> = lists(chunk)
            .flat_map(|(_, list)| groups_of(&list).collect::<Vec<_>>())
            .collect();
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let known = match self.known.take() {
            Some(known) => known,
            None => groups_at("volume send", self.at)?.into_iter().collect(),
        };
        let found = |gid: u32| Some((gid, known.get(&gid)?.clone().into_bytes()));
        let names = named.into_iter().filter_map(found).collect();
        self.known = Some(known);
        Ok(names)
    }
}

/// The receiver's side.
pub(super) struct ReceiverGroups<'a> {
    at: &'a AtArgs,
    known: Option<BTreeMap<String, u32>>,
    /// Groups that are not known here, and in how many lists.
    unknown: BTreeMap<String, u64>,
}

impl<'a> ReceiverGroups<'a> {
    pub(super) fn new(at: &'a AtArgs) -> Self {
        let (known, unknown) = (None, BTreeMap::new());
        Self { at, known, unknown }
    }

    /// Puts the numbers that groups have here into the lists of a part.
    pub(super) fn translate(&mut self, part: &mut Part) -> Result<(), String> {
        let names: BTreeMap<u32, String> = part
            .groups
            .iter()
            .map(|(gid, name)| (*gid, String::from_utf8_lossy(name).into_owned()))
            .collect();
        for (value, list) in lists(&mut part.chunk) {
            if groups_of(&list).next().is_none() {
                continue;
            }
            let known = match &self.known {
                Some(known) => known,
                None => {
                    let all = groups_at("volume receive", self.at);
                    let all = all.map_err(|error| error.to_string())?;
                    let by_name = all.into_iter().map(|(gid, name)| (name, gid)).collect();
                    self.known.insert(by_name)
                }
            };
            let mut entries: Vec<Entry> = Vec::new();
            for entry in list.entries() {
                let Who::Group(gid) = entry.who else {
                    entries.push(*entry);
                    continue;
                };
                if !is_group(gid) {
                    entries.push(*entry);
                    continue;
                }
                // A group that was gone at the sender names nobody, and takes nothing away.
                let Some(name) = names.get(&gid) else {
                    continue;
                };
                match known.get(name) {
                    Some(gid) => entries.push(Entry {
                        who: Who::Group(*gid),
                        ..*entry
                    }),
                    None if entry.negative => return Err(missing(name)),
                    None => *self.unknown.entry(name.clone()).or_default() += 1,
                }
            }
            let list = List::new(entries).ok_or("a list of the stream names a group twice")?;
            *value = Some(Blob(list.encode()));
        }
        Ok(())
    }

    /// Tells what was left out.
    pub(super) fn report(&self) {
        for (name, lists) in &self.unknown {
            let text = format!(
                "this cell has no group {name}: {lists} access lists that gave it rights give them \
                 to nobody here. `ariel group create {name}` makes it, `ariel acl set` adds it"
            );
            let _ = writeln!(std::io::stderr(), "ariel: {text}");
        }
    }
}

fn missing(name: &str) -> String {
    format!(
        "an access list takes rights from the group {name}, which this cell does not have, so its \
         members would get them: make it with `ariel group create {name}`"
    )
}
