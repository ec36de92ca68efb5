//! The only file that reads the operating system's randomness.
//!
//! Guarantees: two values are unrelated, also across processes and restarts. Everything else that
//! looks random in the project comes from a generator seeded here, so that it can be replayed.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// A seed for a generator.
#[must_use]
pub fn seed() -> u64 {
    let mut bytes = [0_u8; 8];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            // Up to 256 bytes come whole, once the kernel's pool is ready.
            Ok(read) if read == bytes.len() => return u64::from_ne_bytes(bytes),
            Ok(_) | Err(Errno::INTR) => {}
            // Predictable sessions would be worse than no process.
            Err(error) => panic!("the kernel gives no random bytes (getrandom): {error}"),
        }
    }
}

/// A secret.
#[must_use]
pub fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&seed().to_ne_bytes());
    }
    bytes
}

/// The name of a new session: never zero, so that zero can mean none.
#[must_use]
pub fn session_id() -> u64 {
    loop {
        let id = seed();
        if id != 0 {
            return id;
        }
    }
}
