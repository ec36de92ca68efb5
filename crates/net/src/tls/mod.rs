//! TLS 1.3 between machines: both ends show a certificate of their cell, and prove its key.
//!
//! Guarantees: nothing older than TLS 1.3 is spoken; a client takes no server but one that its
//! cell's authority has certified as a server; a server knows every peer by its key, and questions
//! of a peer without a certificate are for [`crate::Door::answer`] alone. Sessions of TLS are not
//! resumed and nothing is sent early, so that a machine that was revoked meanwhile does not come
//! in, and nothing that was recorded can be played again.

pub(crate) mod question;
pub(crate) mod record;
pub(crate) mod shake;

use crate::identity::KeyPrint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::sync::Arc;

/// The name that every server certificate of every cell is for: which server it is does not matter,
/// and where it is reached may change.
pub const SERVER_NAME: &str = "server.ariel";
/// Frames of the rooms above.
const FRAMES: &[u8] = b"ariel";
/// One question and its answer.
const QUESTION: &[u8] = b"ariel-cell";

/// Reasons why a text or its parts make no credential.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text is no PEM, or holds something else.
    #[error("no certificate or key in PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The parts do not fit.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// The authority cannot be used.
    #[error("the authority cannot be used: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
}

/// A certificate, with those that vouch for it, and its key, all as PEM.
#[derive(Clone, Copy)]
pub struct Pem<'a> {
    /// The authority of the cell.
    pub authority: &'a str,
    /// The certificate.
    pub certificate: &'a str,
    /// Its key.
    pub key: &'a str,
}

impl Pem<'_> {
    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        // The authority's own certificate goes along: a machine that joins knows its key only.
        let texts = [self.certificate, self.authority];
        let ders = texts.map(|text| CertificateDer::from_pem_slice(text.as_bytes()));
        Ok(ders.into_iter().collect::<Result<_, _>>()?)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        Ok(PrivateKeyDer::from_pem_slice(self.key.as_bytes())?)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes())?)?;
        Ok(Arc::new(roots))
    }
}

/// The print of the key of a certificate given as PEM.
///
/// # Errors
/// It is none.
pub fn print_of_pem(certificate: &str) -> Result<KeyPrint, TlsError> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    Ok(KeyPrint::of_certificate(&der)?)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// How a server shows itself, and whom it lets finish a handshake.
#[derive(Clone)]
pub struct ServerTls(pub(crate) Arc<ServerConfig>);

impl ServerTls {
    /// A server of the cell.
    ///
    /// # Errors
    /// The parts are no credential.
    pub fn new(pem: Pem<'_>) -> Result<ServerTls, TlsError> {
        let clients = WebPkiClientVerifier::builder_with_provider(pem.roots()?, provider())
            .allow_unauthenticated()
            .build()?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(pem.chain()?, pem.key()?)?;
        config.alpn_protocols = vec![FRAMES.to_vec(), QUESTION.to_vec()];
        config.enable_secret_extraction = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerTls(Arc::new(config)))
    }
}

/// How a client shows itself, and which servers it takes.
#[derive(Clone)]
pub struct ClientTls {
    frames: Arc<ClientConfig>,
    question: Arc<ClientConfig>,
    /// Those who vouch for other machines; nobody: this one has no certificate.
    authorities: Option<Arc<RootCertStore>>,
}

impl ClientTls {
    /// A machine of the cell.
    ///
    /// # Errors
    /// The parts are no credential.
    pub fn new(pem: Pem<'_>) -> Result<ClientTls, TlsError> {
        let roots = pem.roots()?;
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let servers = servers.build()?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(servers)
            .with_client_auth_cert(pem.chain()?, pem.key()?)?;
        Ok(ClientTls {
            authorities: Some(roots),
            ..ClientTls::with(config)
        })
    }

    /// A machine that has no certificate yet, and knows the key of its cell's authority.
    ///
    /// # Errors
    /// The provider of cryptography does not speak TLS 1.3, which it does.
    pub fn pinned(authority: KeyPrint) -> Result<ClientTls, TlsError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned {
                taken: Taken::ServerOf(authority),
                provider: provider(),
            }))
            .with_no_client_auth();
        Ok(ClientTls::with(config))
    }

    fn with(mut config: ClientConfig) -> ClientTls {
        config.enable_secret_extraction = true;
        config.resumption = Resumption::disabled();
        let of = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        ClientTls {
            frames: of(FRAMES),
            question: of(QUESTION),
            authorities: None,
        }
    }

    /// For the machine of the cell with this key, and for no other.
    pub(crate) fn for_machine(&self, key: KeyPrint) -> Result<Arc<ClientConfig>, TlsError> {
        let unknown = rustls::Error::General("this machine has no certificate".into());
        let roots = self.authorities.clone().ok_or(unknown)?;
        let machines = WebPkiClientVerifier::builder_with_provider(roots, provider()).build()?;
        let mut config = ClientConfig::clone(&self.frames);
        let called = Pinned {
            taken: Taken::Machine(key, machines),
            provider: provider(),
        };
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(called));
        Ok(Arc::new(config))
    }

    pub(crate) fn for_frames(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.frames)
    }

    pub(crate) fn for_question(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.question)
    }
}

/// The name that a client asks for.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).expect("a constant that is a name")
}

/// Did both agree on frames, or on a question?
pub(crate) fn is_question(protocol: &[u8]) -> bool {
    protocol == QUESTION
}

/// The peer that is taken at the other end.
#[derive(Debug)]
enum Taken {
    /// A server whose certificate was made by the authority with this key.
    ServerOf(KeyPrint),
    /// The machine with this key, if the cell's authority has certified it as a machine.
    Machine(KeyPrint, Arc<dyn ClientCertVerifier>),
}

/// Takes nobody else.
#[derive(Debug)]
struct Pinned {
    taken: Taken,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = match &self.taken {
            Taken::ServerOf(authority) => *authority,
            Taken::Machine(key, machines) => {
                if KeyPrint::of_certificate(end_entity)? != *key {
                    return Err(CertificateError::ApplicationVerificationFailure.into());
                }
                machines.verify_client_cert(end_entity, intermediates, now)?;
                return Ok(ServerCertVerified::assertion());
            }
        };
        let is_pinned = |der: &&CertificateDer<'_>| {
            KeyPrint::of_certificate(der).is_ok_and(|print| print == pinned)
        };
        let authority = intermediates.iter().find(is_pinned);
        let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
