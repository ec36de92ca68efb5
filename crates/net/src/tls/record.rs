//! The records of a TLS 1.3 connection after its handshake: the writing and the reading half apart.
//!
//! The two halves share nothing but the source of new keys, so a writer that waits for a full
//! socket never stops the reader, and the other way round: with one `rustls` connection behind one
//! lock each would wait for the other. The protection of records is `rustls`'s own
//! (`MessageEncrypter`, `MessageDecrypter`, and `KernelConnection` for new keys); here are only
//! their lengths, their order and their numbers.
//!
//! Guarantees: a record is written whole and in its order, whatever the socket takes at a time; a
//! key protects at most [`REKEY_RECORDS`] records, then the next one takes its place (RFC 8446,
//! 4.6.3 and 5.5); a record that was changed, left out, repeated or put out of order on the way is
//! an error and yields no bytes; an idle connection holds [`RECORD_BYTES_MAX`] bytes.

use crate::announced::Source;
use parking_lot::Mutex;
use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage, Tls13AeadAlgorithm,
};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, ExtractedSecrets, ProtocolVersion,
    SupportedCipherSuite,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 5;
/// Most bytes of a record, with its header (RFC 8446, 5.2).
pub(crate) const RECORD_BYTES_MAX: usize = RECORD_HEADER_BYTES + (16 << 10) + 256;
/// Most bytes that one record protects.
const PLAIN_BYTES: usize = 16 << 10;
/// So many bytes are sealed at a time: sealed bytes cannot be overtaken any more.
const SEALED_BYTES: usize = 256 << 10;
/// Read at a time while much comes.
const READ_BYTES_MAX: usize = 256 << 10;
/// Records under one key. AES-GCM bears 2^24.
const REKEY_RECORDS: u64 = 1 << 23;
/// KeyUpdate, one byte long, and no answer is asked for.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const NEW_SESSION_TICKET: u8 = 4;

/// Where the next keys come from.
pub(crate) enum Kernel {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Kernel {
    fn next_tx(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Kernel::Client(connection) => connection.update_tx_secret(),
            Kernel::Server(connection) => connection.update_tx_secret(),
        }
    }

    fn next_rx(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Kernel::Client(connection) => connection.update_rx_secret(),
            Kernel::Server(connection) => connection.update_rx_secret(),
        }
    }

    fn suite(&self) -> SupportedCipherSuite {
        match self {
            Kernel::Client(connection) => connection.negotiated_cipher_suite(),
            Kernel::Server(connection) => connection.negotiated_cipher_suite(),
        }
    }
}

fn parts(secrets: ConnectionTrafficSecrets) -> io::Result<(AeadKey, Iv)> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(io::Error::other("an unknown kind of key was agreed on")),
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The two halves of a connection whose handshake is done.
pub(crate) fn halves(secrets: ExtractedSecrets, kernel: Kernel) -> io::Result<(Sealer, Opener)> {
    // Neither side offers an older version; the library may know one for other crates.
    #[allow(irrefutable_let_patterns)] // unless another crate of the build turns TLS 1.2 on
    let SupportedCipherSuite::Tls13(suite) = kernel.suite() else {
        return Err(io::Error::other(
            "a version of TLS before 1.3 was agreed on",
        ));
    };
    let (aead, kernel) = (suite.aead_alg, Arc::new(Mutex::new(kernel)));
    let (key, iv) = parts(secrets.tx.1)?;
    let sealer = Sealer {
        encrypter: aead.encrypter(key, iv),
        number: secrets.tx.0,
        rekey_records: REKEY_RECORDS,
        aead,
        kernel: Arc::clone(&kernel),
        records: VecDeque::new(),
        skip: 0,
        plain: 0,
    };
    let (key, iv) = parts(secrets.rx.1)?;
    let opener = Opener {
        decrypter: aead.decrypter(key, iv),
        number: secrets.rx.0,
        aead,
        kernel,
        buffer: vec![0; RECORD_BYTES_MAX],
        filled: 0..0,
        plain: 0..0,
    };
    Ok((sealer, opener))
}

/// The writing half: the sealed bytes, and how far they were written.
pub(crate) struct Sealer {
    encrypter: Box<dyn MessageEncrypter>,
    /// Of the next record under this key.
    number: u64,
    rekey_records: u64,
    aead: &'static dyn Tls13AeadAlgorithm,
    kernel: Arc<Mutex<Kernel>>,
    records: VecDeque<Vec<u8>>,
    /// Bytes of the first record that are written.
    skip: usize,
    /// Bytes that the records protect.
    plain: usize,
}

impl Sealer {
    /// Everything sealed is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Seals the beginning of these bytes; to be called when all that was sealed is written.
    pub(crate) fn seal(&mut self, slices: &[&[u8]]) -> io::Result<()> {
        let all = OutboundChunks::new(slices);
        let mut rest = all.split_at(all.len().min(SEALED_BYTES)).0;
        self.plain = rest.len();
        while !rest.is_empty() {
            let (record, later) = rest.split_at(PLAIN_BYTES);
            self.renew_key()?;
            self.push(ContentType::ApplicationData, record)?;
            rest = later;
        }
        Ok(())
    }

    fn push(&mut self, typ: ContentType, payload: OutboundChunks<'_>) -> io::Result<()> {
        let message = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_3,
            payload,
        };
        let sealed = self.encrypter.encrypt(message, self.number);
        self.records.push_back(sealed.map_err(broken)?.encode());
        self.number += 1;
        Ok(())
    }

    fn renew_key(&mut self) -> io::Result<()> {
        if self.number < self.rekey_records {
            return Ok(());
        }
        let update = KEY_UPDATE.as_slice();
        self.push(ContentType::Handshake, update.into())?;
        let (number, secrets) = self.kernel.lock().next_tx().map_err(broken)?;
        let (key, iv) = parts(secrets)?;
        self.encrypter = self.aead.encrypter(key, iv);
        self.number = number;
        Ok(())
    }

    /// Lays what is sealed and not written into slices.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let skips = std::iter::once(self.skip).chain(std::iter::repeat(0));
        let records = self.records.iter().zip(skips);
        records
            .map(|(record, skip)| IoSlice::new(&record[skip..]))
            .collect()
    }

    /// So many sealed bytes were written. When these were the last: how many bytes they protected.
    pub(crate) fn advance(&mut self, written: usize) -> Option<usize> {
        self.skip += written;
        while let Some(first) = self.records.front() {
            if self.skip < first.len() {
                return None;
            }
            self.skip -= first.len();
            self.records.pop_front();
        }
        Some(std::mem::take(&mut self.plain))
    }
}

/// The reading half.
pub(crate) struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    /// Of the next record under this key.
    number: u64,
    aead: &'static dyn Tls13AeadAlgorithm,
    kernel: Arc<Mutex<Kernel>>,
    buffer: Vec<u8>,
    /// The part of the buffer that has come and was not opened yet.
    filled: Range<usize>,
    /// The part of it that was opened and not read yet.
    plain: Range<usize>,
}

impl Opener {
    /// Reads what was opened, and more from the socket when there is nothing.
    pub(crate) fn read(&mut self, socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        let opened = self.opened(socket, into.len())?;
        into[..opened.len()].copy_from_slice(opened);
        Ok(opened.len())
    }

    /// The same, into memory that nobody made zeros.
    fn append(&mut self, socket: &TcpStream, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let opened = self.opened(socket, most)?;
        into.extend_from_slice(opened);
        Ok(opened.len())
    }

    /// The next bytes, at most `most`; none at the end of the stream.
    fn opened(&mut self, socket: &TcpStream, most: usize) -> io::Result<&[u8]> {
        while most > 0 && self.plain.is_empty() {
            match self.record_len()? {
                Some(len) if len <= self.filled.len() => self.open(len)?,
                wanted => {
                    if self.fetch(socket, wanted)? == 0 {
                        return self.end();
                    }
                }
            }
        }
        let taken = most.min(self.plain.len());
        let (from, to) = (self.plain.start, self.plain.start + taken);
        self.plain.start = to;
        Ok(&self.buffer[from..to])
    }

    /// Where the stream ends. Whether that may be here is for the frames to say.
    fn end(&self) -> io::Result<&[u8]> {
        match self.filled.is_empty() {
            true => Ok(&[]),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The length of the record that comes next, once its header is here.
    fn record_len(&self) -> io::Result<Option<usize>> {
        let here = &self.buffer[self.filled.clone()];
        let Some(&[typ, _, _, high, low]) = here.first_chunk() else {
            return Ok(None);
        };
        let len = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
        if ContentType::from(typ) != ContentType::ApplicationData || len > RECORD_BYTES_MAX {
            let what = "the bytes that came are no record of TLS";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Some(len))
    }

    /// Reads more into the buffer, which takes more at a time while it is filled at a time.
    fn fetch(&mut self, socket: &TcpStream, wanted: Option<usize>) -> io::Result<usize> {
        let here = self.filled.len();
        let room = self.buffer.len() - self.filled.end;
        if here == 0 || room == 0 || wanted.is_some_and(|len| len - here > room) {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..here;
        }
        let mut from = socket;
        let read = from.read(&mut self.buffer[self.filled.end..])?;
        self.filled.end += read;
        let (full, len) = (self.filled.end == self.buffer.len(), self.buffer.len());
        if full && len < READ_BYTES_MAX {
            self.buffer.resize((2 * len).min(READ_BYTES_MAX), 0);
        }
        Ok(read)
    }

    /// Opens the record that comes next, which is here in full.
    fn open(&mut self, len: usize) -> io::Result<()> {
        let start = self.filled.start;
        self.filled.start += len;
        let (header, payload) = self.buffer[start..start + len].split_at_mut(RECORD_HEADER_BYTES);
        let version = ProtocolVersion::from(u16::from_be_bytes([header[1], header[2]]));
        let message = InboundOpaqueMessage::new(ContentType::ApplicationData, version, payload);
        let opened = self.decrypter.decrypt(message, self.number);
        let opened = opened.map_err(broken)?;
        self.number += 1;
        match opened.typ {
            ContentType::ApplicationData => {
                let from = start + RECORD_HEADER_BYTES;
                self.plain = from..from + opened.payload.len();
                Ok(())
            }
            ContentType::Alert => Err(alert(opened.payload)),
            ContentType::Handshake => {
                let message = opened.payload.to_vec();
                self.on_handshake(&message)
            }
            _ => Err(broken(rustls::Error::General("an unknown record".into()))),
        }
    }

    /// Handles a message of the handshake that may still come.
    fn on_handshake(&mut self, message: &[u8]) -> io::Result<()> {
        if message.first() == Some(&NEW_SESSION_TICKET) {
            // Sessions of TLS are not resumed: each connection proves who its peers are.
            return Ok(());
        }
        if message != KEY_UPDATE {
            let what = "a record of the handshake came after its end".into();
            return Err(broken(rustls::Error::General(what)));
        }
        let (number, secrets) = self.kernel.lock().next_rx().map_err(broken)?;
        let (key, iv) = parts(secrets)?;
        self.decrypter = self.aead.decrypter(key, iv);
        self.number = number;
        Ok(())
    }
}

/// The reason that the peer gives with its last record. A server looks at the certificate of a
/// client when the client's handshake is done: so this is how a client learns of it.
fn alert(payload: &[u8]) -> io::Error {
    let description = payload.get(1).copied().map(AlertDescription::from);
    match description {
        Some(AlertDescription::CloseNotify) => io::ErrorKind::UnexpectedEof.into(),
        Some(description) => broken(rustls::Error::AlertReceived(description)),
        None => broken(rustls::Error::General("a malformed alert".into())),
    }
}

/// The source that a link reads from.
pub(crate) struct Incoming<'a> {
    socket: &'a TcpStream,
    opener: Option<Opener>,
}

impl<'a> Incoming<'a> {
    pub(crate) fn new(socket: &'a TcpStream, opener: Option<Opener>) -> Incoming<'a> {
        Incoming { socket, opener }
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.opener {
            Some(opener) => opener.read(self.socket, into),
            None => self.socket.read(into),
        }
    }
}

impl Source for Incoming<'_> {
    fn append(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        if let Some(opener) = &mut self.opener {
            return opener.append(self.socket, into, most);
        }
        if into.capacity() - into.len() > most {
            into.shrink_to(into.len() + most);
        }
        // Into memory that nobody made zeros.
        Ok(rustix::io::read(
            self.socket,
            rustix::buffer::spare_capacity(into),
        )?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::shake::{self, Secured};
    use super::super::{ClientTls, Pem, SERVER_NAME, ServerTls, server_name};
    use super::*;
    use crate::clock;
    use crate::frame::{FrameReader, Kind};
    use crate::pen::Pen;
    use crate::queue::{Bulk, Outgoing, Queue};
    use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};
    use std::net::TcpListener;
    use std::thread;

    /// Both ends of a protected connection.
    fn pair() -> [(TcpStream, Secured); 2] {
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = params.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([SERVER_NAME.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        let key = key.serialize_pem();
        let pem = Pem {
            authority: &authority,
            certificate: &certificate,
            key: &key,
        };
        let (server, client) = (ServerTls::new(pem).unwrap(), ClientTls::new(pem).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let deadline_ns = clock::now_ns() + 20_000_000_000;
        thread::scope(|scope| {
            let ours = scope.spawn(|| {
                let (socket, _) = listener.accept().unwrap();
                let secured = shake::as_server(&socket, server.0, deadline_ns).unwrap();
                (socket, secured)
            });
            let socket = TcpStream::connect(addr).unwrap();
            let config = client.for_frames();
            let secured = shake::as_client(&socket, config, server_name(), deadline_ns).unwrap();
            [ours.join().unwrap(), (socket, secured)]
        })
    }

    #[test]
    fn keys_are_renewed_and_every_byte_comes_in_order() {
        let [(from, mut sends), (to, receives)] = pair();
        sends.sealer.rekey_records = 3;
        let bulk = |number: usize| -> Vec<u8> {
            let len = [0, 5, 16_384, 100_000, 1 << 20][number % 5];
            (0..len).map(|at: usize| (at * 31 + number) as u8).collect()
        };
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut pen = Pen::new(Some(sends.sealer));
                let mut queue = Queue::default();
                for number in 0..60 {
                    let message = Outgoing::new(
                        Kind::Message,
                        vec![number as u8; 5000],
                        Bulk::from(bulk(number)),
                    );
                    queue.push(message.unwrap(), false);
                }
                loop {
                    if pen.is_empty() {
                        pen.take(&mut queue);
                    }
                    if pen.is_empty() {
                        break;
                    }
                    match pen.write(&from) {
                        Ok(_) => {}
                        Err(rustix::io::Errno::AGAIN) => thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            let mut frames = FrameReader::new(Incoming::new(&to, Some(receives.opener)));
            for number in 0..60 {
                let frame = frames.next_frame().unwrap().unwrap();
                assert_eq!(frame.body, vec![number as u8; 5000]);
                assert!(frame.bulk == bulk(number), "message {number}");
            }
            assert!(frames.next_frame().unwrap().is_none());
        });
    }

    #[test]
    fn what_is_changed_repeated_or_cut_on_the_way_yields_nothing() {
        use std::io::Write;
        let record_of = |sealer: &mut Sealer, text: &[u8]| {
            sealer.seal(&[text]).unwrap();
            let record = sealer.records[0].clone();
            sealer.advance(record.len());
            record
        };
        for case in 0..5 {
            let [(mut from, mut sends), (to, mut receives)] = pair();
            let first = record_of(&mut sends.sealer, b"first");
            let second = record_of(&mut sends.sealer, b"second");
            let wire = match case {
                0 => [&first[..], &first].concat(),
                1 => {
                    let mut changed = second.clone();
                    *changed.last_mut().unwrap() ^= 1;
                    [&first[..], &changed].concat()
                }
                2 => [&first[..], &second[..second.len() - 1]].concat(),
                3 => [&first[..], &[23, 3, 3, 255, 255, 0]].concat(),
                _ => [&first[..], &[22, 3, 3, 0, 1, 0]].concat(),
            };
            from.write_all(&wire).unwrap();
            drop(from);
            let mut into = [0; 100];
            assert_eq!(receives.opener.read(&to, &mut into).unwrap(), 5);
            assert_eq!(&into[..5], b"first");
            let next = receives.opener.read(&to, &mut into);
            assert!(next.is_err(), "case {case}: {next:?}");
        }
    }
}
