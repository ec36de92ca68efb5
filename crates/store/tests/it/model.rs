//! A file system as simple as possible: what the store is compared with.
//!
//! It shares nothing with the store, also where both must say the same, as in the rules of renames:
//! what is wrong in code that both use would be wrong in both, and the comparison would not see it.

use std::collections::BTreeMap;
use wire::*;

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub dir: Option<BTreeMap<Vec<u8>, Fid>>,
    pub bytes: Vec<u8>,
    pub nlink: u32,
    pub parent: Option<Fid>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub mtime: Time,
    pub symlink: bool,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<Fid, Node>,
}

type Result<T = ()> = std::result::Result<T, Refusal>;

impl Model {
    pub fn new() -> Self {
        let root = Node {
            dir: Some(BTreeMap::new()),
            nlink: 2,
            ..Node::default()
        };
        Self {
            nodes: BTreeMap::from([(Fid::root(1), root)]),
        }
    }

    fn node(&mut self, fid: Fid) -> Result<&mut Node> {
        self.nodes.get_mut(&fid).ok_or(Refusal::Stale)
    }

    fn dir(&mut self, fid: Fid) -> Result<&mut BTreeMap<Vec<u8>, Fid>> {
        self.node(fid)?.dir.as_mut().ok_or(Refusal::NotDirectory)
    }

    fn find(&mut self, dir: Fid, name: &Name) -> Result<Option<Fid>> {
        Ok(self.dir(dir)?.get(name.as_bytes()).copied())
    }

    fn is_dir(&self, fid: Fid) -> bool {
        self.nodes[&fid].dir.is_some()
    }

    fn may_make(&mut self, dir: Fid, name: &Name) -> Result {
        if self.find(dir, name)?.is_some() {
            return Err(Refusal::Exists);
        }
        if self.node(dir)?.nlink == 0 {
            return Err(Refusal::NotFound);
        }
        Ok(())
    }

    /// Applies what the superuser asks for. `made` is the fid that the store gave to a new object.
    pub fn apply(&mut self, op: &Op, data: &[u8], now: Time, made: Option<Fid>) -> Result {
        match op {
            Op::Make {
                dir, name, make, ..
            } => self.make(*dir, name, make, made),
            Op::Link { fid, dir, name } => self.link(*fid, *dir, name),
            Op::Unlink { dir, name } => self.remove(*dir, name, false),
            Op::Rmdir { dir, name } => self.remove(*dir, name, true),
            Op::Rename { .. } => self.rename(op),
            Op::Write {
                fid, offset, mode, ..
            } => self.write(*fid, *offset, *mode, (data, now)),
            Op::Allocate { fid, .. } => self.allocate(*fid, op, now),
            Op::Copy {
                from,
                at,
                to,
                offset,
                len,
            } => {
                let bytes = &self.file(*from)?.bytes;
                let end = bytes.len().min(*at as usize + *len as usize);
                let data = bytes[end.min(*at as usize)..end].to_vec();
                self.write(*to, *offset, WriteMode::At, (&data, now))
            }
            Op::SetAttr { fid, set } => self.truncate(*fid, set.size.unwrap(), now),
            Op::SetXattr {
                fid,
                name,
                value,
                mode,
            } => {
                let node = self.node(*fid)?;
                if node.symlink {
                    return Err(Refusal::NotPermitted);
                }
                match (mode, node.xattrs.contains_key(name)) {
                    (XattrMode::Create, true) => Err(Refusal::Exists),
                    (XattrMode::Replace, false) => Err(Refusal::NoAttribute),
                    _ => {
                        node.xattrs.insert(name.clone(), value.clone());
                        Ok(())
                    }
                }
            }
            Op::RemoveXattr { fid, name } => {
                let node = self.node(*fid)?;
                if node.symlink {
                    return Err(Refusal::NotPermitted);
                }
                let old = node.xattrs.remove(name);
                old.map(|_| ()).ok_or(Refusal::NoAttribute)
            }
            Op::Reap { fid } => match self.node(*fid)?.nlink {
                0 => {
                    self.nodes.remove(fid);
                    Ok(())
                }
                _ => Err(Refusal::Invalid),
            },
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn make(&mut self, dir: Fid, name: &Name, make: &Make, made: Option<Fid>) -> Result {
        self.may_make(dir, name)?;
        let mut node = Node {
            nlink: 1,
            parent: Some(dir),
            ..Node::default()
        };
        match make {
            Make::Directory => {
                node.dir = Some(BTreeMap::new());
                node.nlink = 2;
                self.node(dir)?.nlink += 1;
            }
            Make::Symlink(target) => {
                node.bytes = target.clone();
                node.symlink = true;
            }
            _ => {}
        }
        let fid = made.expect("the store must have made it too");
        assert!(
            self.nodes.insert(fid, node).is_none(),
            "a fid was used again"
        );
        self.dir(dir)?.insert(name.as_bytes().to_vec(), fid);
        Ok(())
    }

    fn link(&mut self, fid: Fid, dir: Fid, name: &Name) -> Result {
        self.node(fid)?;
        self.may_make(dir, name)?;
        if self.is_dir(fid) {
            return Err(Refusal::NotPermitted);
        }
        if self.node(fid)?.nlink == 0 {
            return Err(Refusal::NotFound);
        }
        self.node(fid)?.nlink += 1;
        self.dir(dir)?.insert(name.as_bytes().to_vec(), fid);
        Ok(())
    }

    fn drop_link(&mut self, fid: Fid) {
        let node = self.nodes.get_mut(&fid).unwrap();
        node.nlink = if node.dir.is_some() {
            0
        } else {
            node.nlink - 1
        };
    }

    fn remove(&mut self, dir: Fid, name: &Name, wants_dir: bool) -> Result {
        let fid = self.find(dir, name)?.ok_or(Refusal::NotFound)?;
        match (wants_dir, self.is_dir(fid)) {
            (true, false) => return Err(Refusal::NotDirectory),
            (false, true) => return Err(Refusal::IsDirectory),
            (true, true) if !self.dir(fid)?.is_empty() => return Err(Refusal::NotEmpty),
            (true, true) => self.node(dir)?.nlink -= 1,
            _ => {}
        }
        self.drop_link(fid);
        self.dir(dir)?.remove(name.as_bytes());
        Ok(())
    }

    fn within(&self, dir: Fid, above: Fid) -> bool {
        let mut at = Some(dir);
        while let Some(fid) = at {
            if fid == above {
                return true;
            }
            at = self.nodes.get(&fid).and_then(|node| node.parent);
        }
        false
    }

    fn rename(&mut self, op: &Op) -> Result {
        let Op::Rename {
            from,
            name,
            to,
            new,
            no_replace,
            exchange,
        } = op
        else {
            unreachable!()
        };
        if *no_replace && *exchange {
            return Err(Refusal::Invalid);
        }
        self.dir(*from)?;
        self.dir(*to)?;
        let source = self.find(*from, name)?.ok_or(Refusal::NotFound)?;
        let target = self.find(*to, new)?;
        match target {
            Some(_) if *no_replace => return Err(Refusal::Exists),
            None if *exchange => return Err(Refusal::NotFound),
            _ => {}
        }
        let moves_dir = self.is_dir(source);
        let over_dir = target.is_some_and(|fid| self.is_dir(fid));
        if from != to && moves_dir && self.within(*to, source) {
            return Err(Refusal::Invalid);
        }
        if from != to && over_dir && self.within(*from, target.unwrap()) {
            let refusal = [Refusal::NotEmpty, Refusal::Invalid];
            return Err(refusal[usize::from(*exchange)]);
        }
        if target == Some(source) {
            return Ok(());
        }
        if target.is_none() && self.node(*to)?.nlink == 0 {
            return Err(Refusal::NotFound);
        }
        if let Some(target) = target
            && !exchange
        {
            self.replace(*to, target, moves_dir)?;
        }
        self.dir(*from)?.remove(name.as_bytes());
        if moves_dir {
            self.node(*from)?.nlink -= 1;
            self.node(*to)?.nlink += 1;
        }
        self.dir(*to)?.insert(new.as_bytes().to_vec(), source);
        self.node(source)?.parent = Some(*to);
        if *exchange {
            let target = target.unwrap();
            self.dir(*from)?.insert(name.as_bytes().to_vec(), target);
            self.node(target)?.parent = Some(*from);
            if over_dir {
                self.node(*to)?.nlink -= 1;
                self.node(*from)?.nlink += 1;
            }
        }
        Ok(())
    }

    /// Takes away what a rename puts something else in the place of.
    fn replace(&mut self, dir: Fid, target: Fid, by_dir: bool) -> Result {
        match (by_dir, self.is_dir(target)) {
            (true, false) => return Err(Refusal::NotDirectory),
            (false, true) => return Err(Refusal::IsDirectory),
            (true, true) if !self.dir(target)?.is_empty() => return Err(Refusal::NotEmpty),
            (true, true) => self.node(dir)?.nlink -= 1,
            _ => {}
        }
        self.drop_link(target);
        Ok(())
    }

    fn file(&mut self, fid: Fid) -> Result<&mut Node> {
        let node = self.node(fid)?;
        if node.dir.is_some() {
            return Err(Refusal::IsDirectory);
        }
        if node.symlink {
            return Err(Refusal::Invalid);
        }
        Ok(node)
    }

    fn write(
        &mut self,
        fid: Fid,
        offset: u64,
        mode: WriteMode,
        (data, now): (&[u8], Time),
    ) -> Result {
        let node = self.file(fid)?;
        let offset = match mode {
            WriteMode::Append => node.bytes.len(),
            _ => offset as usize,
        };
        let end = offset + data.len();
        if !data.is_empty() && node.bytes.len() < end {
            node.bytes.resize(end, 0);
        }
        if !data.is_empty() {
            node.bytes[offset..end].copy_from_slice(data);
        }
        match mode {
            WriteMode::Back { size, mtime, .. } => {
                let size = node.bytes.len().max(size as usize);
                node.bytes.resize(size, 0);
                node.mtime = mtime.min(now);
            }
            _ if data.is_empty() => {}
            _ => node.mtime = now,
        }
        Ok(())
    }

    fn allocate(&mut self, fid: Fid, op: &Op, now: Time) -> Result {
        let Op::Allocate {
            offset,
            len,
            zero,
            keep_size,
            ..
        } = *op
        else {
            return Err(Refusal::Invalid);
        };
        if len == 0 {
            return Err(Refusal::Invalid);
        }
        let node = self.file(fid)?;
        let (there, end) = (node.bytes.len(), (offset + len) as usize);
        if zero {
            node.bytes[there.min(offset as usize)..there.min(end)].fill(0);
        }
        let grows = !keep_size && there < end;
        if grows {
            node.bytes.resize(end, 0);
        }
        if zero || grows {
            node.mtime = now;
        }
        Ok(())
    }

    fn truncate(&mut self, fid: Fid, size: u64, now: Time) -> Result {
        let node = self.file(fid)?;
        node.bytes.resize(size as usize, 0);
        node.mtime = now;
        Ok(())
    }
}
