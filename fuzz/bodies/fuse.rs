//! Bytes as a request of the kernel, in both dialects: decoding returns, and a request that is
//! understood has the length that its head says.

use ariel_fuse::Request;
use ariel_fuse::request::Dialect;

/// Panics if a rule is broken.
pub fn run(bytes: &[u8]) {
    for setxattr_ext in [false, true] {
        match Request::parse_in(bytes, Dialect { setxattr_ext }) {
            Ok(request) => {
                let said = u32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"));
                assert_eq!(said as usize, bytes.len());
                // Walks through everything that was decoded.
                assert!(!format!("{:?}", request.operation).is_empty());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
