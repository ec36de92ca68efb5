//! Digests of bytes, and seals that only the holder of a secret can make.

use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign, verify};

/// The first half of the SHA-256 of some bytes.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&digest(&SHA256, bytes).as_ref()[..16]);
    half
}

/// The seal of a text (HMAC-SHA-256).
#[must_use]
pub fn seal(secret: &[u8; 32], text: &[u8]) -> [u8; 32] {
    let mut seal = [0; 32];
    seal.copy_from_slice(sign(&Key::new(HMAC_SHA256, secret), text).as_ref());
    seal
}

/// Was the seal made of this text by a holder of the secret? Takes as long whether it was or not.
#[must_use]
pub fn is_sealed(secret: &[u8; 32], text: &[u8], seal: &[u8; 32]) -> bool {
    verify(&Key::new(HMAC_SHA256, secret), text, seal).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_its_text_and_its_secret_alone() {
        let made = seal(&[1; 32], b"text");
        assert!(is_sealed(&[1; 32], b"text", &made));
        assert!(!is_sealed(&[2; 32], b"text", &made));
        assert!(!is_sealed(&[1; 32], b"texts", &made));
        let mut other = made;
        other[31] ^= 1;
        assert!(!is_sealed(&[1; 32], b"text", &other));
    }

    #[test]
    fn a_digest_is_the_half_of_sha_256() {
        let known = [0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14];
        assert_eq!(digest_of(b"")[..8], known);
        assert_ne!(digest_of(b"a"), digest_of(b"b"));
    }
}
