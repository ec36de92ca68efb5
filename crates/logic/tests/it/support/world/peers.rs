//! Messages between clients in the scenarios' world: blocks that they lend. `B lies`: the next
//! blocks that B lends have another first byte; the room of the reader sees that by the digests.

use super::super::disk::digest;
use super::super::room::BLOCK;
use super::super::show;
use super::{Load, Packet, World};
use logic::client::{Input, PeerInput, PeerOutput};
use wire::{Capability, Digest};

/// A question that a lender has not answered.
pub struct Question {
    reader: char,
    id: u64,
    digests: Vec<Option<Digest>>,
}

impl World {
    /// A machine begins anew, and keeps no blocks of others.
    pub fn keeps_nothing(&mut self, name: char) {
        let most = std::mem::take(&mut self.options.lend_limits.kept_blocks);
        self.cut(name);
        let session = self.number();
        self.start(name, session);
        self.connect(name);
        self.options.lend_limits.kept_blocks = most;
    }

    pub(super) fn for_peer(&mut self, name: char, output: PeerOutput, bulk: &[u8]) {
        match output {
            PeerOutput::Listen { .. } => {
                let (addr, key) = (name.to_string().into_bytes(), [0; 32]);
                let input = PeerInput::Listening { addr, key };
                self.between(name, name, input, Vec::new());
            }
            PeerOutput::Close => self.say(format!("{name} lends no more")),
            PeerOutput::GiveUp { id } => {
                let of_id = |one: &Question| one.reader == name && one.id == id;
                self.questions.retain(|_, one| !of_id(one));
                self.say(format!("{name} waits no longer"));
            }
            PeerOutput::Borrow { id, elsewhere } => {
                let lender = char::from(elsewhere.addr[0]);
                let question = Question {
                    reader: name,
                    id,
                    digests: elsewhere.digests,
                };
                let (ask, capability) = (self.number(), elsewhere.capability);
                self.questions.insert(ask, question);
                self.between(
                    name,
                    lender,
                    PeerInput::Asked { ask, capability },
                    Vec::new(),
                );
            }
            PeerOutput::Soon { ask } => {
                if let Some(Question { reader, id, .. }) = self.questions.get(&ask) {
                    let (reader, id) = (*reader, *id);
                    self.between(name, reader, PeerInput::Soon { id }, Vec::new());
                }
            }
            PeerOutput::Lent {
                ask,
                have,
                bulk: pieces,
            } => {
                let bytes = self.machines[&name].gather(&pieces, bulk);
                self.lent(name, ask, (have, bytes));
            }
        }
    }

    /// The answer of a lender; the reader's room takes of it what the digests vouch for.
    fn lent(&mut self, name: char, ask: u64, (have, mut bytes): (Vec<u16>, Vec<u8>)) {
        let Some(question) = self.questions.remove(&ask) else {
            return;
        };
        if self.liars.remove(&name) && !bytes.is_empty() {
            bytes[0] ^= 1;
        }
        let is_right = |(at, block): &(&u16, &[u8])| {
            question.digests[usize::from(**at)] == Some(digest(block))
        };
        let blocks = have.iter().zip(bytes.chunks_exact(BLOCK));
        let right: Vec<(&u16, &[u8])> = blocks.filter(is_right).collect();
        let input = PeerInput::Borrowed {
            id: question.id,
            have: right.iter().map(|(at, _)| **at).collect(),
            failing: right.len() < have.len(),
        };
        let bytes = right
            .iter()
            .flat_map(|(_, block)| *block)
            .copied()
            .collect();
        self.between(name, question.reader, input, bytes);
    }

    fn between(&mut self, from: char, to: char, input: PeerInput, bytes: Vec<u8>) {
        self.send(Packet {
            from,
            to,
            conn: 0,
            load: Load::Between(input, bytes),
        });
    }

    pub(super) fn arrive_between(
        &mut self,
        (from, to): (char, char),
        input: PeerInput,
        bytes: &[u8],
    ) {
        if let Some(text) = self.between_text(&input) {
            self.say(format!("{from} -> {to} {text}"));
        }
        self.client(to, Input::Peer(input), bytes);
        self.check();
    }

    pub(super) fn between_text(&self, input: &PeerInput) -> Option<String> {
        let text = match input {
            PeerInput::Listening { .. } | PeerInput::Machine { .. } => return None,
            PeerInput::Asked { capability, .. } => self.asks(capability),
            PeerInput::Soon { .. } => "lends soon".into(),
            PeerInput::Borrowed { have, failing, .. } if have.is_empty() => match failing {
                true => "lends what is not the block".into(),
                false => "lends nothing".into(),
            },
            PeerInput::Borrowed { have, .. } => format!("lends blocks {have:?}"),
        };
        Some(text)
    }

    fn asks(&self, of: &Capability) -> String {
        let (name, version) = (show::name(&self.disk, of.fid), of.version);
        let end = of.first + u64::from(of.count);
        format!("asks for blocks {}..{end} of {name} v{version}", of.first)
    }
}
