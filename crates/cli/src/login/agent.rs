//! The ssh agent, as far as a login needs it: its ed25519 keys, and a signature with one.

use anyhow::{Context, bail};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Somebody may have to touch a device.
const PATIENCE: Duration = Duration::from_secs(60);
const LIST: u8 = 11;
const KEYS: u8 = 12;
const SIGN: u8 = 13;
const SIGNED: u8 = 14;

/// An agent.
pub(super) struct Agent(UnixStream);

/// Takes a part with its length from the front.
fn part<'a>(bytes: &mut &'a [u8]) -> anyhow::Result<&'a [u8]> {
    let found = bytes.split_first_chunk::<4>().and_then(|(len, rest)| {
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        *bytes = rest;
        Some(part)
    });
    found.context("the ssh agent answers something else")
}

fn push(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
    bytes.extend_from_slice(part);
}

impl Agent {
    /// The agent of this session.
    pub(super) fn open() -> anyhow::Result<Agent> {
        let path = std::env::var_os("SSH_AUTH_SOCK");
        let path = path.context("no ssh agent runs here: `eval $(ssh-agent)`, then `ssh-add`")?;
        let stream = UnixStream::connect(&path);
        let stream = stream.with_context(|| format!("the ssh agent at {}", path.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Agent(stream))
    }

    fn ask(&mut self, question: &[u8], expected: u8) -> anyhow::Result<Vec<u8>> {
        let mut framed = Vec::new();
        push(&mut framed, question);
        let told = self.0.write_all(&framed);
        told.context("the ssh agent hangs up: it serves only the user who started it")?;
        let mut len = [0; 4];
        self.0.read_exact(&mut len).context("the ssh agent")?;
        let len = u32::from_be_bytes(len) as usize;
        if !(1..=ANSWER_BYTES_MAX).contains(&len) {
            bail!("the ssh agent answers too much");
        }
        let mut answer = vec![0; len];
        self.0.read_exact(&mut answer).context("the ssh agent")?;
        match answer.remove(0) {
            kind if kind == expected => Ok(answer),
            _ => bail!("the ssh agent refuses: `ssh-add -l` shows its keys"),
        }
    }

    /// The ed25519 keys that it has.
    pub(super) fn keys(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let answer = self.ask(&[LIST], KEYS)?;
        let (count, mut rest) = answer.split_first_chunk::<4>().context("the ssh agent")?;
        let mut keys = Vec::new();
        for _ in 0..u32::from_be_bytes(*count) {
            let blob = part(&mut rest)?;
            part(&mut rest)?;
            if part(&mut &*blob)? == b"ssh-ed25519" {
                keys.push(blob.to_vec());
            }
        }
        Ok(keys)
    }

    /// Signs these bytes with a key that it has.
    pub(super) fn sign(&mut self, key: &[u8], bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut question = vec![SIGN];
        push(&mut question, key);
        push(&mut question, bytes);
        question.extend_from_slice(&0u32.to_be_bytes());
        let answer = self.ask(&question, SIGNED)?;
        Ok(part(&mut answer.as_slice())?.to_vec())
    }
}
