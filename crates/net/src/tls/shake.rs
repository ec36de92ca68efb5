//! The handshake: from a fresh socket to keys, and to the certificate that the peer proved.
//!
//! Guarantees: it ends at its deadline, however slowly the peer sends; it takes from the socket no
//! byte beyond the handshake's last record; it holds one flight of the peer's, bounded by
//! [`FLIGHT_BYTES_MAX`].

use super::record::{self, Kernel, Opener, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, Sealer};
use crate::clock;
use crate::identity::KeyPrint;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, ServerConfig};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// A flight of a handshake with certificates of a cell takes 2 KiB.
const FLIGHT_BYTES_MAX: usize = 64 << 10;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShakeError {
    /// The peer speaks this protocol without TLS.
    #[error("the peer speaks without TLS")]
    Plain,
    /// The peer was silent, or sent too slowly.
    #[error("the peer did not finish the handshake in time")]
    Late,
    /// The peer's certificate, or its messages, were refused; or it refused ours.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A connection that is protected.
pub(crate) struct Secured {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
    /// The key that the peer proved to hold, with a certificate of the cell.
    pub(crate) peer: Option<KeyPrint>,
    /// The protocol that both agreed on.
    pub(crate) protocol: Vec<u8>,
}

/// The socket, as long as the handshake may use it.
struct Wire<'a> {
    socket: &'a TcpStream,
    deadline_ns: u64,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Wire<'_> {
    fn left(&self) -> Result<Duration, ShakeError> {
        match self.deadline_ns.saturating_sub(clock::now_ns()) {
            0 => Err(ShakeError::Late),
            left_ns => Ok(Duration::from_nanos(left_ns)),
        }
    }

    fn fill(&mut self, wanted: usize) -> Result<(), ShakeError> {
        let mut socket = self.socket;
        let mut filled = self.incoming.len();
        self.incoming.resize(filled + wanted, 0);
        while filled < self.incoming.len() {
            socket.set_read_timeout(Some(self.left()?))?;
            match socket.read(&mut self.incoming[filled..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads one record, and nothing that comes after it.
    fn read_record(&mut self) -> Result<(), ShakeError> {
        let start = self.incoming.len();
        self.fill(RECORD_HEADER_BYTES)?;
        let header = &self.incoming[start..];
        if header.starts_with(b"ARIL") {
            return Err(ShakeError::Plain);
        }
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if len + RECORD_HEADER_BYTES > RECORD_BYTES_MAX || start + len > FLIGHT_BYTES_MAX {
            return Err(rustls::Error::General("an oversized record".into()).into());
        }
        self.fill(len)
    }

    /// Sends what was encoded.
    fn write(&mut self) -> Result<(), ShakeError> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        // A flight fits into the socket's buffer: nothing of it waits for the peer.
        self.socket.set_write_timeout(Some(self.left()?))?;
        let mut socket = self.socket;
        socket.write_all(&self.outgoing)?;
        self.outgoing.clear();
        Ok(())
    }
}

/// Drives a connection until it may be used; the two kinds have no trait in common.
macro_rules! shake {
    ($connection:ident, $wire:ident) => {
        loop {
            let UnbufferedStatus { discard, state, .. } =
                $connection.process_tls_records(&mut $wire.incoming);
            let state = match state {
                Ok(state) => state,
                Err(error) => {
                    $wire.incoming.drain(..discard);
                    say_why!($connection, $wire);
                    break Err(ShakeError::from(error));
                }
            };
            let mut wants_record = false;
            let mut done = false;
            match state {
                ConnectionState::EncodeTlsData(mut data) => {
                    if let Err(error) = encode(&mut $wire.outgoing, |room| data.encode(room)) {
                        break Err(error);
                    }
                }
                ConnectionState::TransmitTlsData(data) => {
                    if let Err(error) = $wire.write() {
                        break Err(error);
                    }
                    data.done();
                }
                ConnectionState::BlockedHandshake => wants_record = true,
                ConnectionState::WriteTraffic(_) => done = true,
                _ => {
                    let what = "the peer spoke before the handshake's end".into();
                    break Err(rustls::Error::General(what).into());
                }
            }
            $wire.incoming.drain(..discard);
            if done && !$connection.is_handshaking() {
                break Ok(());
            }
            if (wants_record || done)
                && let Err(error) = $wire.read_record()
            {
                break Err(error);
            }
        }
    };
}

/// Tells the peer why the handshake has failed, as far as it can be told. Nothing that the peer has
/// said is looked at again: rustls takes a second failure of one connection for a bug of its
/// caller.
macro_rules! say_why {
    ($connection:ident, $wire:ident) => {
        while $connection.wants_write() {
            let status = $connection.process_tls_records(&mut $wire.incoming);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state else {
                break;
            };
            if encode(&mut $wire.outgoing, |room| data.encode(room)).is_err() {
                break;
            }
        }
        // It is refused whether it hears of it or not.
        let _ = $wire.write();
    };
}

/// Lets `data` write itself behind what is in `outgoing`.
fn encode(
    outgoing: &mut Vec<u8>,
    mut data: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), ShakeError> {
    let start = outgoing.len();
    let mut room = 0;
    loop {
        outgoing.resize(start + room, 0);
        match data(&mut outgoing[start..]) {
            Ok(len) => {
                outgoing.truncate(start + len);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(needs)) if needs.required_size > room => {
                room = needs.required_size;
            }
            Err(error) => {
                return Err(rustls::Error::General(error.to_string()).into());
            }
        }
    }
}

fn wire(socket: &TcpStream, deadline_ns: u64) -> Wire<'_> {
    Wire {
        socket,
        deadline_ns,
        incoming: Vec::new(),
        outgoing: Vec::new(),
    }
}

/// The key that the peer has proved to hold, and the protocol.
fn proved(connection: &rustls::CommonState) -> Result<(Option<KeyPrint>, Vec<u8>), ShakeError> {
    let certificate = connection
        .peer_certificates()
        .and_then(|chain| chain.first());
    let peer = certificate.map(KeyPrint::of_certificate).transpose()?;
    let protocol = connection.alpn_protocol().unwrap_or_default().to_vec();
    Ok((peer, protocol))
}

/// The handshake of the end that has connected.
pub(crate) fn as_client(
    socket: &TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    deadline_ns: u64,
) -> Result<Secured, ShakeError> {
    let mut connection = UnbufferedClientConnection::new(config, name)?;
    let mut wire = wire(socket, deadline_ns);
    shake!(connection, wire)?;
    let (peer, protocol) = proved(&connection)?;
    let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
    let (sealer, opener) = record::halves(secrets, Kernel::Client(kernel))?;
    Ok(Secured {
        sealer,
        opener,
        peer,
        protocol,
    })
}

/// The handshake of the end that was connected to.
pub(crate) fn as_server(
    socket: &TcpStream,
    config: Arc<ServerConfig>,
    deadline_ns: u64,
) -> Result<Secured, ShakeError> {
    let mut connection = UnbufferedServerConnection::new(config)?;
    let mut wire = wire(socket, deadline_ns);
    shake!(connection, wire)?;
    let (peer, protocol) = proved(&connection)?;
    let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
    let (sealer, opener) = record::halves(secrets, Kernel::Server(kernel))?;
    Ok(Secured {
        sealer,
        opener,
        peer,
        protocol,
    })
}
