//! The cell's database in etcd, for the servers of a cell together: over its JSON interface.
//!
//! Guarantees: a change is made whole or not at all, and a lost answer is an error, so that nobody
//! takes it for one or the other; a read sees every change that was answered before, by whichever
//! server it was made; an answer of another kind than etcd's is an error and never an empty table.

use crate::database::{Changes, Database, DatabaseError, Place};
use crate::location::Location;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use net::clock;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// How long one member may take to be reached, and to answer.
const CONNECT_TIME: Duration = Duration::from_secs(2);
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Most bytes of an answer, and of a line of it.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The error of a member that is named with TLS and has none.
const NO_TLS: &str = "it answers in clear";
/// The error of one that is named without TLS and has it.
const WANTS_TLS: &str = "it wants TLS";
const OTHER_AUTHORITY: &str =
    "its certificate is from none of the authorities in the file of `--database-ca`";
/// Cures of errors of TLS: of a database that is named with it or without, and some words of the
/// error.
const CURES: [(bool, &str, &str); 6] = [
    (
        true,
        NO_TLS,
        "start etcd with `--cert-file` and `--key-file`, and an https:// address to listen at, or \
         keep it on loopback and name it etcd://",
    ),
    (true, "UnknownIssuer", OTHER_AUTHORITY),
    // An authority of the same name.
    (true, "BadSignature", OTHER_AUTHORITY),
    (
        true,
        "NotValidForName",
        "its certificate is for another name: name it as its certificate does",
    ),
    (
        true,
        "CertificateRequired",
        "it wants a certificate of this server: `--database-cert FILE --database-key FILE`",
    ),
    (
        false,
        WANTS_TLS,
        "name it etcds://, with `--database-ca FILE`",
    ),
];
/// etcd takes so many operations in one change, unless its `--max-txn-ops` says another number.
const OPERATIONS_MAX: usize = 128;

/// The database.
pub(crate) struct Etcd {
    agent: ureq::Agent,
    location: Location,
    /// The member that answered last.
    member: AtomicUsize,
}

/// A record as etcd tells it. Numbers of 64 bits are strings in its JSON.
#[derive(Deserialize)]
struct Record {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Default, Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Record>,
    header: Option<Header>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    revision: String,
}

#[derive(Deserialize)]
struct Txn {
    header: Option<Header>,
    #[serde(default)]
    succeeded: bool,
}

/// One line of a watch.
#[derive(Deserialize)]
struct Line {
    result: Option<Watched>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Watched {
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    canceled: bool,
}

/// Why a member gave no answer.
enum Unanswered {
    /// It was not reached: nothing was done.
    Away(String),
    /// It was reached, and what it did is not known.
    Doubtful(String),
    /// It refused.
    Refused(String),
}

impl Etcd {
    /// The database at this place, which is not asked yet.
    pub(crate) fn new(location: Location) -> Result<Etcd, DatabaseError> {
        let tls = tls(&location).map_err(|error| DatabaseError::Access {
            place: location.url.to_string(),
            error,
        })?;
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIME))
            .timeout_global(Some(ANSWER_TIME))
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .tls_config(tls)
            .build();
        Ok(Etcd {
            agent: config.into(),
            location,
            member: AtomicUsize::new(0),
        })
    }

    fn failed(&self, error: impl Into<String>) -> DatabaseError {
        let (place, error) = (self.location.url.to_string(), error.into());
        match self.access_cure(&error) {
            Some(cure) => {
                let error = format!("{cure} ({error})");
                DatabaseError::Access { place, error }
            }
            None => DatabaseError::Shared { place, error },
        }
    }

    /// A key of etcd's.
    fn key(&self, table: &str, key: &str) -> String {
        BASE64.encode(format!("/{}/{table}/{key}", self.location.url.prefix))
    }

    fn url(&self, member: usize, path: &str) -> String {
        let scheme = if self.location.url.tls {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}/v3/{path}", self.location.url.hosts[member])
    }

    /// Asks one member after the other until one answers. A question that changes something goes to
    /// another one only if it has certainly changed nothing.
    fn ask(&self, path: &str, question: &Value, changes: bool) -> Result<Vec<u8>, DatabaseError> {
        let count = self.location.url.hosts.len();
        let first = self.member.load(Ordering::Relaxed);
        let mut last = String::new();
        for step in 0..count {
            let member = (first + step) % count;
            match self.ask_member(member, path, question) {
                Ok(answer) => {
                    self.member.store(member, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Unanswered::Refused(error)) => return Err(self.failed(error)),
                Err(Unanswered::Doubtful(error)) if changes => return Err(self.failed(error)),
                Err(Unanswered::Away(error) | Unanswered::Doubtful(error)) => last = error,
            }
        }
        Err(self.failed(last))
    }

    fn ask_member(
        &self,
        member: usize,
        path: &str,
        question: &Value,
    ) -> Result<Vec<u8>, Unanswered> {
        let sent = self
            .agent
            .post(&self.url(member, path))
            .send(question.to_string().as_bytes());
        let mut response = sent.map_err(|error| self.unanswered(member, error))?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let bytes = body.read_to_vec().map_err(unanswered)?;
        if status.is_success() {
            return Ok(bytes);
        }
        let told = String::from_utf8_lossy(&bytes).trim().to_owned();
        let error = format!("it answers {status}: {told}");
        // A member without a leader, or that is just starting, says so with a failure of its own.
        match status.is_server_error() {
            true => Err(Unanswered::Doubtful(error)),
            false => Err(Unanswered::Refused(error)),
        }
    }

    /// A member that was reached and gave no answer may be one that is named with TLS and has none,
    /// or the other way round.
    fn unanswered(&self, member: usize, error: ureq::Error) -> Unanswered {
        let timed_out = matches!(error, ureq::Error::Timeout(_));
        match unanswered(error) {
            Unanswered::Doubtful(_) if !timed_out && self.answers_otherwise(member) => {
                let error = if self.location.url.tls {
                    NO_TLS
                } else {
                    WANTS_TLS
                };
                Unanswered::Refused(error.to_owned())
            }
            other => other,
        }
    }

    /// Does a member answer over TLS if it is named without, or without if it is named with it? It
    /// is asked how it is, which shows no secret, so it need not prove who it is.
    fn answers_otherwise(&self, member: usize) -> bool {
        let scheme = if self.location.url.tls {
            "http"
        } else {
            "https"
        };
        let url = format!("{scheme}://{}/health", self.location.url.hosts[member]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let anybody = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .disable_verification(true)
            .build();
        let asked = self.agent.get(&url).config().tls_config(anybody).build();
        asked.call().is_ok()
    }

    /// The cure of an error of TLS, which no waiting cures: by the words of etcd and of the
    /// library, which has no numbers for them.
    fn access_cure(&self, error: &str) -> Option<&'static str> {
        let tls = self.location.url.tls;
        let mut cures = CURES.iter();
        let found = cures.find(|(of_tls, words, _)| *of_tls == tls && error.contains(words));
        found.map(|(_, _, cure)| *cure)
    }

    fn range(&self, question: &Value) -> Result<Range, DatabaseError> {
        let answer = self.ask("kv/range", question, false)?;
        let range: Range = self.read(&answer)?;
        // Every answer of etcd's has a header.
        match range.header {
            Some(_) => Ok(range),
            None => Err(self.failed("it answers something else than etcd does")),
        }
    }

    fn read<'a, T: Deserialize<'a>>(&self, answer: &'a [u8]) -> Result<T, DatabaseError> {
        let read = serde_json::from_slice(answer);
        read.map_err(|error| self.failed(format!("its answer is not understood: {error}")))
    }

    fn bytes(&self, text: &str) -> Result<Vec<u8>, DatabaseError> {
        let read = BASE64.decode(text);
        read.map_err(|error| self.failed(format!("its answer is not understood: {error}")))
    }

    /// Waits at most so long for one event after a revision of etcd's.
    fn wait_event(&self, key: &str, since: i64, limit: Duration) -> Result<(), DatabaseError> {
        let question = json!({ "create_request": {
            "key": key, "start_revision": (since + 1).to_string(),
        }});
        let member = self.member.load(Ordering::Relaxed);
        let asked = self.agent.post(&self.url(member, "watch"));
        let asked = asked.config().timeout_global(Some(limit)).build();
        let sent = asked.send(question.to_string().as_bytes());
        let response = match sent {
            Ok(response) if response.status().is_success() => response,
            Ok(response) => return Err(self.failed(format!("it answers {}", response.status()))),
            Err(ureq::Error::Timeout(_)) => return Ok(()),
            Err(error) => return Err(self.failed(error.to_string())),
        };
        let body = response.into_body().into_with_config();
        let mut lines = BufReader::new(body.limit(ANSWER_BYTES_MAX).reader());
        let mut text = String::new();
        loop {
            text.clear();
            match lines.read_line(&mut text) {
                // The limit was reached, or the member ended: the caller looks again either way.
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
            let line: Line = self.read(text.as_bytes())?;
            let ended = line.error.is_some();
            let watched = line
                .result
                .is_some_and(|it| it.canceled || !it.events.is_empty());
            if ended || watched {
                return Ok(());
            }
        }
    }
}

fn unanswered(error: ureq::Error) -> Unanswered {
    let told = error.to_string();
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed => Unanswered::Away(told),
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Unanswered::Away(told)
        }
        _ => Unanswered::Doubtful(told),
    }
}

/// How this server shows itself to etcd, and knows it.
fn tls(location: &Location) -> Result<TlsConfig, String> {
    let read = |path: &Path| {
        let bytes = std::fs::read(path);
        bytes.map_err(|error| format!("{}: {error}", path.display()))
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    if location.url.tls && location.ca.is_none() {
        return Err("name the authority of its certificates with `--database-ca FILE`".into());
    }
    if let Some(ca) = &location.ca {
        let roots = certificates(&read(ca)?, ca)?;
        config = config.root_certs(RootCerts::new_with_certs(&roots));
    }
    if let Some((certificate, key)) = &location.client {
        let chain = certificates(&read(certificate)?, certificate)?;
        let wrong = |error: ureq::Error| format!("{}: {error}", key.display());
        let key = PrivateKey::from_pem(&read(key)?).map_err(wrong)?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
    }
    Ok(config.build())
}

fn certificates(pem: &[u8], path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let all = ureq::tls::parse_pem(pem).filter_map(|item| match item {
        Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let all: Vec<Certificate<'static>> = all.collect();
    match all.is_empty() {
        true => Err(format!("{}: no certificate is in it", path.display())),
        false => Ok(all),
    }
}

impl Database for Etcd {
    fn get(&self, place: &Place) -> Result<Option<Vec<u8>>, DatabaseError> {
        let key = self.key(place.table, &place.key);
        let range = self.range(&json!({ "key": key }))?;
        let value = range.kvs.first().map(|record| self.bytes(&record.value));
        value.transpose()
    }

    fn list(&self, table: &'static str) -> Result<Vec<(String, Vec<u8>)>, DatabaseError> {
        let first = format!("/{}/{table}/", self.location.url.prefix);
        // The byte after the slash ends the table.
        let end = format!("/{}/{table}0", self.location.url.prefix);
        let range = self.range(&json!({
            "key": BASE64.encode(&first), "range_end": BASE64.encode(end),
            "sort_order": "ASCEND", "sort_target": "KEY",
        }))?;
        let records = range.kvs.iter().map(|record| {
            let key = String::from_utf8_lossy(&self.bytes(&record.key)?).into_owned();
            let key = key.strip_prefix(&first).unwrap_or(&key).to_owned();
            Ok((key, self.bytes(&record.value)?))
        });
        records.collect()
    }

    fn commit(&self, changes: &Changes) -> Result<bool, DatabaseError> {
        if changes.when.len().max(changes.then.len()) > OPERATIONS_MAX {
            return Err(self.failed(format!(
                "the change is of {} records, and etcd takes {OPERATIONS_MAX} at once",
                changes.then.len()
            )));
        }
        let when = changes.when.iter().map(|(place, expected)| {
            let key = self.key(place.table, &place.key);
            match expected {
                Some(value) => json!({ "key": key, "target": "VALUE", "result": "EQUAL",
                    "value": BASE64.encode(value) }),
                None => json!({ "key": key, "target": "CREATE", "result": "EQUAL",
                    "create_revision": "0" }),
            }
        });
        let then = changes.then.iter().map(|(place, value)| {
            let key = self.key(place.table, &place.key);
            match value {
                Some(value) => json!({ "request_put": { "key": key,
                    "value": BASE64.encode(value) } }),
                None => json!({ "request_delete_range": { "key": key } }),
            }
        });
        let question = json!({
            "compare": when.collect::<Vec<_>>(), "success": then.collect::<Vec<_>>(),
        });
        let answer = self.ask("kv/txn", &question, true)?;
        let txn: Txn = self.read(&answer)?;
        match txn.header {
            Some(_) => Ok(txn.succeeded),
            None => Err(self.failed("it answers something else than etcd does")),
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn wait_changed(
        &self,
        place: &Place,
        seen: Option<&[u8]>,
        limit: Duration,
    ) -> Result<Option<Vec<u8>>, DatabaseError> {
        let until_ns = clock::now_ns() + limit.as_nanos() as u64;
        let key = self.key(place.table, &place.key);
        loop {
            let range = self.range(&json!({ "key": key }))?;
            let value = range.kvs.first().map(|record| self.bytes(&record.value));
            let value = value.transpose()?;
            let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
            if value.as_deref() != seen || left.is_zero() {
                return Ok(value);
            }
            let revision = range.header.map(|header| header.revision);
            let since = revision.and_then(|revision| revision.parse().ok());
            let since = since.ok_or_else(|| self.failed("it tells no revision"))?;
            self.wait_event(&key, since, left)?;
        }
    }
}

#[cfg(test)]
#[path = "etcd_process.rs"]
mod process;
#[cfg(test)]
#[path = "etcd_tests.rs"]
mod tests;
