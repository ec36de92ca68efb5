//! Bytes as a message of either side: decoding returns, lets nothing through that breaks a bound,
//! and what it returns says the same when encoded anew.

use wire::{Bounded, ToClient, ToServer, decode, encode};

/// Panics if a rule is broken.
pub fn run(bytes: &[u8]) {
    if let Ok(message) = decode::<ToServer>(bytes) {
        assert!(message.within_bounds());
        assert_eq!(decode::<ToServer>(&encode(&message)).as_ref(), Ok(&message));
    }
    if let Ok(message) = decode::<ToClient>(bytes) {
        assert!(message.within_bounds());
        assert_eq!(decode::<ToClient>(&encode(&message)).as_ref(), Ok(&message));
    }
}
