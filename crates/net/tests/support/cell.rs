//! A cell of a test: an authority, a server's door, and machines.

use super::{SOON, speaks};
use ariel_net::{
    Addresses, ClientTls, Credentials, Dialer, Door, Entrance, Events, Identity, KeyPrint,
    ListenOptions, Listener, Passage, Pem, SERVER_NAME, ServerTls, print_of_pem,
};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A certificate and its key.
#[derive(Clone)]
pub struct Certified {
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

impl Certified {
    pub fn pem(&self) -> Pem<'_> {
        Pem {
            authority: &self.authority,
            certificate: &self.certificate,
            key: &self.key,
        }
    }
}

/// The credentials of a machine.
pub struct Shown(pub ClientTls);

impl Credentials for Shown {
    fn tls(&self) -> Result<ClientTls, String> {
        Ok(self.0.clone())
    }
}

/// The peers that the door knows.
struct TestDoor {
    tls: ServerTls,
    known: Arc<Mutex<BTreeMap<KeyPrint, Result<Identity, String>>>>,
}

impl Door for TestDoor {
    fn tls(&self) -> ServerTls {
        self.tls.clone()
    }
    fn admit(&self, key: KeyPrint) -> Result<Identity, String> {
        let known = self.known.lock().unwrap();
        known
            .get(&key)
            .cloned()
            .unwrap_or_else(|| Err("nobody knows you".into()))
    }
    fn answer(&self, key: Option<KeyPrint>, question: &[u8]) -> Vec<u8> {
        let who = if key.is_some() { "known" } else { "stranger" };
        [who.as_bytes(), b": ", question].concat()
    }
}

pub struct TestCell {
    pub authority: String,
    issuer: Issuer<'static, KeyPair>,
    known: Arc<Mutex<BTreeMap<KeyPrint, Result<Identity, String>>>>,
}

impl Default for TestCell {
    fn default() -> TestCell {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        TestCell {
            authority: params.self_signed(&key).unwrap().pem(),
            issuer: Issuer::new(params, key),
            known: Arc::default(),
        }
    }
}

impl TestCell {
    pub fn certify(&self, usage: ExtendedKeyUsagePurpose) -> Certified {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([SERVER_NAME.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        Certified {
            authority: self.authority.clone(),
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// A machine that the door lets in.
    pub fn machine(&self, name: &str) -> ClientTls {
        let certified = self.certify(ExtendedKeyUsagePurpose::ClientAuth);
        let mut known = self.known.lock().unwrap();
        let identity = Identity::Machine {
            id: known.len() as u64 + 1,
            name: name.to_owned(),
        };
        let print = print_of_pem(&certified.certificate).unwrap();
        known.insert(print, Ok(identity));
        ClientTls::new(certified.pem()).unwrap()
    }

    /// From now on no machine is let in.
    pub fn revoke_all(&self, why: &str) {
        let mut known = self.known.lock().unwrap();
        known
            .values_mut()
            .for_each(|entry| *entry = Err(why.to_owned()));
    }

    fn entrance_of(&self, certified: &Certified) -> Entrance {
        Entrance::Tls(Arc::new(TestDoor {
            tls: ServerTls::new(certified.pem()).unwrap(),
            known: Arc::clone(&self.known),
        }))
    }

    pub fn bind(&self, addr: SocketAddr, events: Arc<dyn Events>) -> Listener {
        let server = self.certify(ExtendedKeyUsagePurpose::ServerAuth);
        self.bind_as(&server, addr, events)
    }

    /// The listener shows itself with this certificate.
    pub fn bind_as(
        &self,
        certified: &Certified,
        addr: SocketAddr,
        events: Arc<dyn Events>,
    ) -> Listener {
        let options = ListenOptions {
            entrance: self.entrance_of(certified),
            speaks: speaks(),
            silence: SOON,
        };
        Listener::bind(&[addr], options, events).unwrap()
    }

    pub fn dial(&self, listener: &Listener, tls: ClientTls, events: Arc<dyn Events>) -> Dialer {
        let how = (Passage::Tls(Arc::new(Shown(tls))), speaks());
        Dialer::new(Addresses::from(listener.local_addr()), how, events).unwrap()
    }
}

/// Why a dialer has no link.
pub fn trouble(dialer: &Dialer) -> String {
    let error = dialer.wait_connected(Duration::from_secs(2)).err();
    error.expect("there must be no link").to_string()
}
