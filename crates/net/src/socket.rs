//! How the sockets of links are set.
//!
//! Guarantees: the bytes that the kernel has taken and not sent yet are at most [`NOTSENT_BYTES`]
//! and a segment, so a short message waits for that at most; a connection whose other end does not
//! acknowledge what was sent, or does not read it, ends after [`UNHEARD`], and so does an idle one
//! whose other end is gone.

use rustix::net::sockopt;
use socket2::SockRef;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// Most written bytes that wait in the kernel, beside those on their way.
const NOTSENT_BYTES: u32 = 128 << 10;
/// For so long nothing need be acknowledged. Longer than the rooms above wait for a word of their
/// peer: this is for what they do not wait for, and for sockets that they have given up.
const UNHEARD: Duration = Duration::from_secs(10);
/// An idle peer is probed after this time, and so often.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

/// Sets all that a link wants.
pub(crate) fn prepare(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(socket, UNHEARD.as_millis() as u32)?;
    SockRef::from(socket).set_tcp_notsent_lowat(NOTSENT_BYTES)
}

/// Bytes on their way, and bytes that wait, are given up when the socket is closed: they would
/// arrive when another connection has sent them again.
pub(crate) fn give_up(socket: &TcpStream) {
    // An error means that the connection is gone already.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
