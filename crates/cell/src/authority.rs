//! The cell's authority: makes certificates.
//!
//! Guarantees: a machine's certificate cannot stand for a server, nor a server's for a machine. A
//! certificate says which key, what for and until when, and nothing of rights.

use crate::words::{hex, secret};
use net::{KeyPrint, SERVER_NAME};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use time::OffsetDateTime;

/// How long the authority counts: as long as a cell may live.
const AUTHORITY_LIFE_S: u64 = 20 * 365 * 86_400;
/// Clocks of machines may differ by so much.
const BACKDATED_S: u64 = 3600;
/// Bytes of a public key on P-256, uncompressed.
const PUBLIC_KEY_BYTES: usize = 65;

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
#[error("no certificate can be made: {0}")]
pub struct AuthorityError(String);

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> AuthorityError {
        AuthorityError(error.to_string())
    }
}

impl From<time::error::ComponentRange> for AuthorityError {
    fn from(error: time::error::ComponentRange) -> AuthorityError {
        AuthorityError(format!("{error}: correct this machine's clock"))
    }
}

/// A public key as a machine that joins gives it.
pub(crate) struct PublicKey(Vec<u8>);

impl PublicKey {
    /// A point on P-256, in hexadecimal.
    pub(crate) fn parse(text: &str) -> Option<PublicKey> {
        let bytes = crate::words::unhex(text)?;
        (bytes.len() == PUBLIC_KEY_BYTES && bytes[0] == 4).then_some(PublicKey(bytes))
    }

    /// Its print.
    pub(crate) fn print(&self) -> KeyPrint {
        KeyPrint::of_key(&self.subject_public_key_info())
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// A fresh key of this machine: as PEM, and its public part in hexadecimal.
pub(crate) fn new_key() -> Result<(String, String), AuthorityError> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), hex(key.public_key_raw())))
}

/// The authority.
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

fn params(cell: &str, life: (u64, u64)) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::new([])?;
    let at = |seconds: u64| OffsetDateTime::from_unix_timestamp(seconds as i64);
    params.not_before = at(life.0.saturating_sub(BACKDATED_S))?;
    params.not_after = at(life.1)?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, format!("Ariel cell {cell}"));
    Ok(params)
}

fn of_authority(cell: &str, now_s: u64) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(cell, (now_s, now_s + AUTHORITY_LIFE_S))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

impl Authority {
    /// A new one: as PEM its certificate and its key.
    pub(crate) fn make(cell: &str, now_s: u64) -> Result<(String, String), AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = of_authority(cell, now_s)?.self_signed(&key)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// The one that was made.
    pub(crate) fn load(
        cell: &str,
        certificate: String,
        key: &str,
    ) -> Result<Authority, AuthorityError> {
        // Of these only the name and the uses count for what it certifies.
        let params = of_authority(cell, 0)?;
        Ok(Authority {
            certificate,
            issuer: Issuer::new(params, KeyPair::from_pem(key)?),
        })
    }

    /// Its certificate, as PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate of a server of this cell, as PEM.
    pub(crate) fn certify_server(
        &self,
        key: &PublicKey,
        (cell, life): (&str, (u64, u64)),
    ) -> Result<String, AuthorityError> {
        let mut params = params(cell, life)?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(SERVER_NAME.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, key)
    }

    /// A certificate of a machine, as PEM.
    pub(crate) fn certify_machine(
        &self,
        (name, key): (&str, &PublicKey),
        (cell, life): (&str, (u64, u64)),
    ) -> Result<String, AuthorityError> {
        let mut params = params(cell, life)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, key)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        key: &PublicKey,
    ) -> Result<String, AuthorityError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(secret()[..16].to_vec().into());
        Ok(params.signed_by(key, &self.issuer)?.pem())
    }
}
