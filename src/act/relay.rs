//! A way to the API server for one program, on which nothing is written: reads pass, writes pass as dry runs only, and each of those
//! is kept with what was there before and what was answered.
//!
//! Owns: the way. It listens on loopback, at an address that only the kubeconfig of that program tells, and asks with the rights of
//! its client. What passes is for `relay/gate.rs` to say. Must not know: what is made of what was heard (`decide::simulate`).

mod gate;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING,
    UPGRADE, WARNING,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, request};
use axum::response::{IntoResponse as _, Response};
use decide::simulate::{Answer, Passage, Target};
use kube::Client;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::gate::{Passes, Write, passes};
use crate::act::telemetry::chain;

const JSON: &str = "application/json";
/// More than an API server takes.
const LARGEST: usize = 8 << 20;
/// As whom a request is meant, if not as whoever sends it.
const IMPERSONATED: &str = "impersonate-user";

/// It ends with this value.
#[derive(Debug)]
pub struct Relay {
    folder: tempfile::TempDir,
    heard: Arc<Mutex<Vec<Passage>>>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What each request is answered with.
#[derive(Clone)]
struct Way {
    client: Client,
    secret: Arc<str>,
    heard: Arc<Mutex<Vec<Passage>>>,
}

impl Relay {
    /// Listens; `namespace` is that of what names none.
    pub async fn to(client: Client, namespace: &str) -> io::Result<Self> {
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random).map_err(|_| io::Error::other("there is no randomness"))?;
        let secret: Arc<str> = format!("{:032x}", u128::from_be_bytes(random)).into();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let folder = tempfile::Builder::new().prefix("gatera-").tempdir()?;
        let server = server(listener.local_addr()?, &secret);
        // Of nobody else: the folder is its maker's alone.
        fs::write(folder.path().join("kubeconfig"), kubeconfig(&server, namespace).to_string())?;
        let heard = Arc::<Mutex<Vec<Passage>>>::default();
        let way = Way { client, secret, heard: Arc::clone(&heard) };
        let router = Router::new().fallback(passing).with_state(way);
        let task = tokio::spawn(async move {
            // It accepts as long as there is a loopback.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { folder, heard, task })
    }

    /// What the program reads to find its way here.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A folder of its own, which goes with this.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The writes so far, in their order.
    pub fn heard(&self) -> Vec<Passage> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// kubectl sends no token without TLS, so what nobody can guess stands in the path.
fn server(address: SocketAddr, secret: &str) -> String {
    format!("http://{address}/{secret}")
}

fn kubeconfig(server: &str, namespace: &str) -> Value {
    let name = "gatera-simulate";
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": { "server": server } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name, "namespace": namespace } }],
        "users": [{ "name": name, "user": {} }],
        "current-context": name,
    })
}

async fn passing(State(way): State<Way>, request: Request) -> Response {
    let path = request.uri().path();
    let own = path.strip_prefix('/').and_then(|it| it.strip_prefix(&*way.secret));
    let Some(path) = own.filter(|path| path.starts_with('/')) else {
        return no(StatusCode::NOT_FOUND, "there is nothing here");
    };
    let path = path.to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST).await else {
        return no(StatusCode::PAYLOAD_TOO_LARGE, "gatera simulate: the request is too large");
    };
    if parts.headers.contains_key(UPGRADE) {
        return no(StatusCode::FORBIDDEN, "gatera simulate: what a container does is no dry run");
    }
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let passes = match passes(&parts.method, &path, &query, content_type, &body) {
        Ok(passes) => passes,
        Err(why) => return no(StatusCode::FORBIDDEN, why),
    };
    let query = if let Passes::Write(write) = &passes { &write.query } else { &query };
    let uri = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
    let Ok(uri) = uri.parse::<Uri>() else {
        return no(StatusCode::BAD_REQUEST, "gatera simulate: the request has no path");
    };
    parts.headers.remove(HOST);
    of_one_connection(&mut parts.headers);
    parts.uri = uri;
    let Passes::Write(write) = passes else {
        return match way.client.send(request_of(&parts, &body)).await {
            Ok(mut answer) => {
                of_one_connection(answer.headers_mut());
                answer.map(Body::new)
            }
            Err(error) => away(&error),
        };
    };
    written(&way, parts, *write).await
}

/// A write, with what was there before and what is answered.
async fn written(way: &Way, mut parts: request::Parts, write: Write) -> Response {
    let Write { target, method, sent, body, .. } = write;
    if method == decide::simulate::Method::Delete && !body.is_empty() {
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    }
    // Its answer is read here, too.
    parts.headers.remove(ACCEPT_ENCODING);
    let accepts = parts.headers.get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if accepts.split(',').any(|it| it.trim() == JSON) {
        parts.headers.insert(ACCEPT, HeaderValue::from_static(JSON));
    }
    let before = before(&way.client, &parts, &target).await;
    let answer = match way.client.send(request_of(&parts, &body)).await {
        Ok(answer) => answer,
        Err(error) => return away(&error),
    };
    let (mut answered, body) = answer.into_parts();
    of_one_connection(&mut answered.headers);
    if target.subresource == "eviction" {
        // Whoever is refused for now asks ten times without a word, which changes nothing here.
        answered.headers.remove(RETRY_AFTER);
    }
    let body = match body.collect_bytes().await {
        Ok(body) => body,
        Err(error) => return away(&error),
    };
    let code = answered.status.as_u16();
    let message = if code < 400 { String::new() } else { message(&body) };
    let object = if code < 400 { serde_json::from_slice(&body).unwrap_or_default() } else { Value::Null };
    let answer = Answer { code, message, warnings: warnings(&answered.headers), object };
    let user = parts.headers.get(IMPERSONATED).and_then(|it| it.to_str().ok()).map(str::to_owned);
    let passage = Passage { target, method, user, body: sent, before, answer };
    way.keep(passage);
    Response::from_parts(answered, Body::from(body))
}

impl Way {
    /// Whoever drains asks again and again.
    fn keep(&self, passage: Passage) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let again = |it: &&mut Passage| {
            (&it.target, it.method, &it.body) == (&passage.target, passage.method, &passage.body)
                && !passage.target.name.is_empty()
        };
        match heard.iter_mut().find(again) {
            Some(known) => *known = passage,
            None => heard.push(passage),
        }
    }
}

/// What was there, null if nothing was; in words, why that is not known. A subresource that is not the object itself is asked for by
/// its own path.
async fn before(client: &Client, parts: &request::Parts, target: &Target) -> Result<Value, String> {
    if target.name.is_empty() || target.subresource == "eviction" {
        return Ok(Value::Null);
    }
    let mut asked = axum::http::Request::get(parts.uri.path());
    for (name, value) in &parts.headers {
        if name.as_str().starts_with("impersonate-") {
            asked = asked.header(name, value);
        }
    }
    let unknown = |why: &str| format!("what was there could not be read: {why}");
    let request = asked.body(kube::client::Body::empty()).map_err(|error| unknown(&error.to_string()))?;
    let answer = client.send(request).await.map_err(|error| unknown(&chain(&error)))?;
    let code = answer.status();
    let body = answer.into_body().collect_bytes().await.map_err(|error| unknown(&chain(&error)))?;
    match code {
        StatusCode::NOT_FOUND => Ok(Value::Null),
        _ if code.is_success() => serde_json::from_slice(&body).map_err(|error| unknown(&error.to_string())),
        _ => Err(unknown(&message(&body))),
    }
}

/// Takes away what is true of the connection that it came on alone.
fn of_one_connection(headers: &mut HeaderMap) {
    for own in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(own);
    }
}

fn request_of(parts: &request::Parts, body: &Bytes) -> axum::http::Request<kube::client::Body> {
    let mut request = axum::http::Request::new(kube::client::Body::from(body.clone()));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.headers_mut() = parts.headers.clone();
    request
}

fn message(body: &[u8]) -> String {
    match serde_json::from_slice::<Value>(body) {
        Ok(status) => status["message"].as_str().unwrap_or_default().to_owned(),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    }
}

fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.get_all(WARNING).iter().filter_map(|it| str::from_utf8(it.as_bytes()).ok());
    texts.filter_map(warning).collect()
}

/// The words of a header like `299 - "words"`.
pub fn warning(header: &str) -> Option<String> {
    let words = header.strip_prefix("299 ")?.split_once(" \"")?.1.strip_suffix('"')?;
    Some(words.replace("\\\"", "\"").replace("\\\\", "\\"))
}

fn away(error: &kube::Error) -> Response {
    no(StatusCode::BAD_GATEWAY, &format!("gatera simulate: the API server: {}", chain(error)))
}

/// As an API server says it, so that kubectl prints it.
fn no(code: StatusCode, message: &str) -> Response {
    let status = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "code": code.as_u16() });
    (code, axum::Json(status)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_warning() {
        for (header, words) in [
            ("299 - \"[G11] a \\\"b\\\" …\"", Some("[G11] a \"b\" …")),
            ("299 kube \"a\"", Some("a")),
            ("199 - \"a\"", None),
            ("299 - a", None),
            ("", None),
        ] {
            assert_eq!(warning(header).as_deref(), words, "{header}");
        }
    }
}
