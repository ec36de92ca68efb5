//! `--metrics ADDR`: what a mount or a server counts, over HTTP in Prometheus' text format.
//!
//! Guarantees: nothing is measured for it: each answer is made of what `ariel status` and `ariel
//! profile` show at that moment. No file's name, user or session is in it. A connection to the
//! address harms only itself: so many connections at once, so much time to ask, one page.

mod mounted;
mod page;
mod stages;
mod table;

use crate::failure::Failure;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Most connections served at once; others wait.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take to ask, and to take its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long no connection is taken after one could not be: out of descriptors, as a rule, and
/// nothing tells when there are some again.
const PAUSE: Duration = Duration::from_millis(100);
/// The only page.
const PATH: &str = "/metrics";
/// Prometheus' name of its text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Status and profile of this process; `None`: it is ending.
pub(crate) type Look = dyn Fn() -> Option<(Value, Value)> + Send + Sync;

/// Serves the page at an address until the process ends; the address, with the port that was taken.
pub(crate) fn serve(addr: SocketAddr, look: Arc<Look>) -> Result<SocketAddr, Failure> {
    let failed = |error: std::io::Error| {
        Failure::of("--metrics", format_args!("{addr}: {error}: choose another"))
    };
    let listener = std::net::TcpListener::bind(addr).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().enable_time().build().map_err(failed)?;
    let run = move || {
        let served = runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            accept(listener, look).await;
            Ok::<(), std::io::Error>(())
        });
        if let Err(error) = served {
            tracing::error!("metrics are not served: {error}");
        }
    };
    let thread = thread::Builder::new().name("metrics".into()).spawn(run);
    thread.map_err(failed)?;
    tracing::info!("metrics at http://{addr}{PATH}");
    Ok(addr)
}

async fn accept(listener: TcpListener, look: Arc<Look>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::debug!("a connection for metrics: {error}");
                        // Nothing tells when there are descriptors again.
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                };
                let look = Arc::clone(&look);
                tokio::task::spawn_local(async move {
                    // Answered or not, the connection is over then.
                    let _ = tokio::time::timeout(TIMEOUT, talk(stream, look)).await;
                    drop(place);
                });
            }
        })
        .await;
}

/// One connection, and one question.
async fn talk(stream: TcpStream, look: Arc<Look>) -> Result<(), hyper::Error> {
    let answer = move |request: Request<hyper::body::Incoming>| {
        let response = respond(request.method(), request.uri().path(), &*look);
        async move { Ok::<_, Infallible>(response) }
    };
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await
}

fn respond(method: &Method, path: &str, look: &Look) -> Response<String> {
    let refusal = |status: StatusCode, text: &str| {
        let mut response = Response::new(format!("{text}\n"));
        *response.status_mut() = status;
        response
    };
    if path != PATH {
        return refusal(StatusCode::NOT_FOUND, "the page is /metrics");
    }
    if method != Method::GET && method != Method::HEAD {
        let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "ask with GET");
        let allowed = hyper::header::HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    let Some((status, profile)) = look() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "this process is ending");
    };
    match page::of(&status, &profile) {
        Ok(page) => {
            let mut response = Response::new(page);
            let text = hyper::header::HeaderValue::from_static(TEXT);
            response.headers_mut().insert(CONTENT_TYPE, text);
            response
        }
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
