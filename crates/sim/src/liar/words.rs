//! The liar's messages: well formed, and not true.

use super::{MOST, OTHER, RIGHTS, State};
use wire::{
    Access, Attr, Caller, Chosen, Delegated, Epoch, Fid, Hold, Holding, Make, Name, Op, Request,
    Returned, Set, ToServer, Unseen, VERSION, WriteMode, limits,
};

impl State {
    /// Something that is not so.
    pub(super) fn word(&mut self) -> ToServer {
        self.said += 1;
        if self.said > MOST {
            let (sent, acked) = (0, 0);
            return ToServer::KeepAlive { sent, acked };
        }
        if let Some(last) = self.last.clone().filter(|_| self.rng.chance(100)) {
            return last;
        }
        // A greedy liar wants to stay.
        let weights = if self.greedy {
            [40, 1, 1, 10, 6, 8, 6, 6, 0, 0]
        } else {
            [40, 12, 12, 10, 6, 8, 6, 6, 1, 1]
        };
        let word = match self.rng.weighted(&weights) {
            0 => self.request(),
            1 => ToServer::Returned(Returned {
                fid: self.any(),
                epoch: self.epoch(),
                right: *self.rng.pick(&RIGHTS),
                upto: self.epoch(),
                hold: self.hold(),
                attr: self.attr(),
            }),
            2 => ToServer::Release {
                fid: self.any(),
                epoch: self.epoch(),
                right: *self.rng.pick(&RIGHTS),
                hold: self.hold(),
            },
            3 => ToServer::Opens {
                fid: self.any(),
                hold: self.hold(),
            },
            4 if self.rng.chance(500) => ToServer::PutBack {
                request: self.number(),
            },
            4 => ToServer::Confirmed {
                request: self.number(),
            },
            5 => self.reassert(),
            6 => ToServer::KeepAlive {
                sent: self.number(),
                acked: self.acked(),
            },
            7 => self.watch(),
            8 => ToServer::Goodbye,
            _ => ToServer::Hello {
                version: *self.rng.pick(&[VERSION, VERSION, 0, u32::MAX]),
                // Another one only where a session has been greeted: that must be refused. It may
                // come on the next connection all the same, and open it.
                session: if self.greeted {
                    *self.rng.pick(&[self.session, 0, OTHER])
                } else {
                    0
                },
                name: vec![0xff; 20],
                volume: Vec::new(),
            },
        };
        self.last = Some(word.clone());
        word
    }

    /// It watches what there is or not, and takes what it never was told.
    fn watch(&mut self) -> ToServer {
        let watch = *self.rng.pick(&[0, 1, 2, u64::MAX]);
        // Few that end its connection: the rest is to be heard, too.
        let next = match self.rng.below(20) {
            0 => *self.rng.pick(&[limits::CHANGES, u64::MAX]),
            1..=4 => limits::CHANGES / 2,
            _ => self.rng.below(20),
        };
        match self.rng.below(5) {
            0 | 1 => ToServer::Watch {
                watch,
                fid: self.any(),
                recursive: self.rng.chance(500),
                next,
            },
            2 | 3 => ToServer::Took { watch, next },
            _ => ToServer::Unwatch { watch },
        }
    }

    fn reassert(&mut self) -> ToServer {
        let most = if self.greedy { 4 } else { 3 };
        let holding = |liar: &mut Self| Holding {
            fid: liar.any(),
            right: *liar.rng.pick(&RIGHTS[..most]),
            hold: liar.hold(),
        };
        let holdings = (0..self.rng.below(4)).map(|_| holding(self)).collect();
        let unseen = Unseen {
            request: self.number(),
            names: vec![(self.any(), self.name())],
            fids: vec![self.any()],
        };
        ToServer::Reassert {
            term: *self.rng.pick(&[self.boot, self.boot, 0, u64::MAX]),
            part: *self
                .rng
                .pick(&[(0, 1), (0, 1), (1, 2), (0, u32::MAX), (1, 1)]),
            again: 0,
            holdings,
            unseen: vec![unseen],
            locks: vec![],
        }
    }

    fn request(&mut self) -> ToServer {
        self.last_request += 1;
        let usual = self.last_request;
        let old = self.rng.between(1, usual);
        let id = *self.rng.pick(&[usual, usual, usual, usual, old]);
        let op = if self.rng.chance(600) {
            self.question()
        } else {
            self.refused()
        };
        // Without the tokens: it is done as any other request, and refused as such. But what makes
        // a name would come to have another one.
        let names = matches!(op, Op::Make { .. } | Op::Link { .. } | Op::Rename { .. });
        let delegates = op.may_be_delegated() && !names && self.rng.chance(500);
        let vnode = u64::from(matches!(op, Op::Make { .. })) * self.rng.between(1, 100);
        let names = vnode != 0 || matches!(op, Op::Rename { .. } | Op::Link { .. });
        let position = u64::from(names) * *self.rng.pick(&[0, 1, 7, limits::POSITIONS - 1]);
        let delegated = delegates.then_some(Delegated {
            at: u64::MAX,
            chosen: Chosen { vnode, position },
            unseen: true,
            named: [None; 2],
        });
        ToServer::Request(Request {
            id,
            acked: self.acked(),
            op,
            caller: Caller::default(),
            hold: self.hold(),
            keeps: self.rng.chance(500),
            ahead: *self.rng.pick(&[0, 4096, u32::MAX]),
            clock: u64::MAX,
            delegated,
            after: *self.rng.pick(&[0, 0, 0, 1, id - 1]),
            again: None,
            lenders: wire::Lenders::None,
        })
    }

    /// Questions that any client may ask, also about objects that are not there.
    fn question(&mut self) -> Op {
        let fid = self.any();
        let offset = *self.rng.pick(&[0, 512, 1 << 20, 1 << 40, 1 << 62]);
        let len = *self.rng.pick(&[0, 512, 4096, 1 << 20]);
        let after = *self.rng.pick(&[0, 1, 1 << 40, u64::MAX]);
        let max = *self.rng.pick(&[0, 1, 4096]);
        let write = self.greedy && self.rng.chance(500);
        let access = Access { read: true, write };
        match self.rng.below(10) {
            0 | 1 => Op::Lookup {
                dir: fid,
                name: self.name(),
            },
            2 => Op::GetAttr { fid },
            3 => Op::ReadLink { fid },
            4 => Op::Open { fid, access },
            9 if self.greedy => Op::Claim { fid },
            5 => Op::Read { fid, offset, len },
            6 => Op::ReadDir {
                dir: fid,
                after,
                max,
            },
            7 => Op::Sync { fid },
            8 if self.rng.chance(500) => Op::Prefetch {
                dir: fid,
                after,
                max,
            },
            _ => Op::GetXattr {
                fid,
                name: b"user.none".to_vec(),
            },
        }
    }

    /// Operations that must be refused.
    fn refused(&mut self) -> Op {
        let (fid, dir, root) = (self.bad(), self.bad(), Fid::root(1));
        let (name, nobody) = (self.name(), named(b"nobody"));
        let (offset, len) = (*self.rng.pick(&[0, 512, 1 << 40]), 512);
        let size = Some(*self.rng.pick(&[0, 1 << 40, u64::MAX]));
        let (no_replace, exchange) = (self.rng.chance(300), self.rng.chance(300));
        let set = Set {
            size,
            ..Set::default()
        };
        match self.rng.below(9) {
            0 => Op::SetAttr { fid, set },
            1 => Op::Make {
                dir,
                name,
                make: Make::File,
                mode: u32::MAX,
                open: None,
            },
            2 => Op::Link {
                fid,
                dir: root,
                name: nobody,
            },
            3 => Op::Unlink {
                dir: root,
                name: nobody,
            },
            4 => Op::Rename {
                from: root,
                name: nobody,
                to: root,
                new: name,
                no_replace,
                exchange,
            },
            5 => Op::RemoveXattr {
                fid: self.any(),
                name: b"user.none".to_vec(),
            },
            6 if !self.greedy => Op::Reap { fid: self.any() },
            // A client that has the file to itself would be believed.
            7 if !self.greedy => Op::Write {
                fid: self.any(),
                offset,
                len,
                mode: WriteMode::Back {
                    size: u64::MAX,
                    mtime: 0,
                    ctime: u64::MAX,
                },
            },
            _ => Op::Write {
                fid,
                offset,
                len,
                mode: *self
                    .rng
                    .pick(&[WriteMode::At, WriteMode::Append, WriteMode::Lazy]),
            },
        }
    }

    /// Something there, or not.
    fn any(&mut self) -> Fid {
        if self.rng.chance(150) {
            return self.bad();
        }
        *self.rng.pick(&self.fids)
    }

    /// Something that has never been.
    fn bad(&mut self) -> Fid {
        let fid = |volume, vnode, uniq| Fid {
            volume,
            vnode,
            uniq,
        };
        let known = *self.rng.pick(&self.fids);
        *self.rng.pick(&[
            fid(0, 0, 0),
            fid(2, known.vnode, known.uniq),
            fid(1, u64::MAX, 1),
            fid(1, known.vnode, u32::MAX),
        ])
    }

    fn name(&mut self) -> Name {
        let long = [b'x'; 255];
        named(
            self.rng
                .pick::<&[u8]>(&[b"r0", b"r1", b"l0", b"f0", b"d0", b"nobody", &long]),
        )
    }

    pub(super) fn hold(&mut self) -> Hold {
        Hold {
            open: self.rng.chance(500),
            write: self.rng.chance(200),
            stamp: self.number(),
        }
    }

    fn epoch(&mut self) -> Epoch {
        let known = self.rng.below(self.epochs.len() as u64) as usize;
        let known = self.epochs.get(known).copied().unwrap_or(self.boot);
        *self
            .rng
            .pick(&[known, known, known + 1, 0, known.wrapping_sub(1), u64::MAX])
    }

    fn number(&mut self) -> u64 {
        let small = self.rng.below(200);
        *self.rng.pick(&[small, small, small, 0, u64::MAX])
    }

    fn acked(&mut self) -> u64 {
        if self.rng.chance(5) {
            u64::MAX
        } else {
            self.rng.below(self.last_request + 1)
        }
    }

    /// Attributes that contradict themselves and everything else.
    pub(super) fn attr(&mut self) -> Option<Attr> {
        (!self.greedy && self.rng.chance(300)).then_some(Attr {
            uid: 1,
            gid: 1,
            nlink: 0,
            size: u64::MAX,
            rdev: 1,
            mtime: u64::MAX,
            version: u64::MAX,
            ..Attr::new(wire::Kind::Symlink, u16::MAX, 0)
        })
    }
}

fn named(bytes: &[u8]) -> Name {
    Name::new(bytes).expect("1 to 255 bytes without a slash")
}
