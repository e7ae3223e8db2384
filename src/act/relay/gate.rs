//! Which requests pass the relay, and as what they are sent on.
//!
//! Owns: that nothing is written. What asks for a dry run passes, and is sent as one in words of our own: two readers of the same
//! request may understand it differently. Must not know: connections, and what is made of what passed.

use axum::body::Bytes;
use axum::http::Method;
use decide::simulate::{self, Target};
use decide::stored::Patch;
use serde_json::{Value, json};

/// These carry a stream in both directions, or lead to what listens behind: what goes through them is no dry run.
const STREAMS: [&str; 5] = ["exec", "attach", "portforward", "proxy", "log"];
/// What may be written of an object besides itself; elsewhere nobody promises that a dry run is one.
const WRITTEN: [&str; 7] = ["", "approval", "eviction", "finalize", "resize", "scale", "status"];

const NO_DRY_RUN: &str = "gatera simulate: this is no dry run, so it was not sent";
const A_STREAM: &str = "gatera simulate: what a container does is no dry run";
const ODD: &str = "gatera simulate: kubectl writes no such path, so it was not sent";

/// A request that passes.
#[derive(Debug, PartialEq)]
pub(super) enum Passes {
    /// As it is.
    Read,
    /// As a dry run.
    Write(Box<Write>),
}

/// A write that is sent as a dry run.
#[derive(Debug, PartialEq)]
pub(super) struct Write {
    pub(super) target: Target,
    pub(super) method: simulate::Method,
    /// What was sent, as it was meant; null: nothing.
    pub(super) sent: Value,
    pub(super) query: String,
    pub(super) body: Bytes,
}

/// Whether it does, and why not.
pub(super) fn passes(
    method: &Method,
    path: &str,
    query: &str,
    content_type: &str,
    body: &Bytes,
) -> Result<Passes, &'static str> {
    // API servers read the path as it is meant, and not as it is written.
    let odd = |part: &str| matches!(part, "" | "." | "..");
    let parts: Vec<_> = path.trim_start_matches('/').trim_end_matches('/').split('/').collect();
    if path.contains(['%', ';', '\\'])
        || path.starts_with("//")
        || parts.len() > 1 && parts.iter().any(|it| odd(it))
    {
        return Err(ODD);
    }
    let target = Target::read(path);
    let is_read = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let to = target.as_ref().map_or("", |it| &*it.subresource);
    if STREAMS.contains(&to) && !(is_read && to == "log") {
        return Err(A_STREAM);
    }
    if is_read {
        return Ok(Passes::Read);
    }
    let target = target.filter(|it| WRITTEN.contains(&&*it.subresource)).ok_or(NO_DRY_RUN)?;
    let mut sent = read(body);
    if !is_dry_run(method, &target, query, &sent, body) {
        return Err(NO_DRY_RUN);
    }
    let mut body = body.clone();
    if *method == Method::DELETE && !body.is_empty() {
        sent["dryRun"] = json!(["All"]);
        body = sent.to_string().into();
    }
    let others = query.split('&').filter(|it| !it.is_empty() && !names_a_dry_run(it));
    let query = others.chain(["dryRun=All"]).collect::<Vec<_>>().join("&");
    let method = match *method {
        Method::PUT => simulate::Method::Replace,
        Method::DELETE => simulate::Method::Delete,
        // What is no patch that is known is refused by API servers.
        Method::PATCH => simulate::Method::Patch(Patch::of(content_type).unwrap_or(Patch::Merge)),
        Method::POST => simulate::Method::Create,
        _ => return Err(NO_DRY_RUN),
    };
    Ok(Passes::Write(Box::new(Write { target, method, sent, query, body })))
}

/// Somebody means it to be one. The options of a deletion stand in its body, if it has one: then nobody reads its query.
fn is_dry_run(method: &Method, target: &Target, query: &str, sent: &Value, body: &Bytes) -> bool {
    let all = |options: &Value| options["dryRun"] == json!(["All"]);
    if *method == Method::DELETE && !body.is_empty() {
        return all(sent);
    }
    let said: Vec<_> = query.split('&').filter(|it| names_a_dry_run(it)).collect();
    let evicts = *method == Method::POST && target.subresource == "eviction";
    !said.is_empty() && said.iter().all(|it| *it == "dryRun=All")
        || evicts && said.is_empty() && all(&sent["deleteOptions"])
}

/// However it is written: what is understood here as one is left out, and said anew.
fn names_a_dry_run(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    name.contains('%') || name.eq_ignore_ascii_case("dryRun")
}

/// What is sent as JSON or YAML; a text that is neither is itself, so that it is taken for nothing else.
fn read(body: &Bytes) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    let text = String::from_utf8_lossy(body);
    serde_json::from_str(&text)
        .or_else(|_| serde_saphyr::from_str(&text))
        .unwrap_or_else(|_| Value::String(text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "/api/v1/namespaces/db/pods/a-0";

    fn sent_on(method: &str, path: &str, query: &str, body: &str) -> Result<(String, String), &'static str> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let body = Bytes::copy_from_slice(body.as_bytes());
        match passes(&method, path, query, "application/merge-patch+json", &body)? {
            Passes::Read => Ok(("read".to_owned(), String::new())),
            Passes::Write(write) => Ok((write.query, String::from_utf8(write.body.to_vec()).unwrap())),
        }
    }

    /// What passes is a dry run for the API server, by its query, and by the body of a deletion.
    #[test]
    fn what_is_meant_as_a_dry_run_is_sent_as_one() {
        let all = r#"{"dryRun":["All"]}"#;
        for (method, query, body, on) in [
            ("POST", "dryRun=All", "{}", "dryRun=All"),
            ("PATCH", "fieldManager=x&dryRun=All", "{}", "fieldManager=x&dryRun=All"),
            ("PUT", "dryRun=All&dryRun=All", "{}", "dryRun=All"),
            ("DELETE", "dryRun=All", "", "dryRun=All"),
            ("DELETE", "", all, "dryRun=All"),
        ] {
            assert_eq!(
                sent_on(method, POD, query, body),
                Ok((on.to_owned(), body.to_owned())),
                "{method} {query}"
            );
        }
        let evicts = r#"{"deleteOptions":{"dryRun":["All"]}}"#;
        let eviction = format!("{POD}/eviction");
        assert_eq!(sent_on("POST", &eviction, "", evicts), Ok(("dryRun=All".to_owned(), evicts.to_owned())));
    }

    #[test]
    fn what_an_api_server_would_do_does_not_pass() {
        let options = r#"{"spec":{},"deleteOptions":{"dryRun":["All"]}}"#;
        for (method, query, body) in [
            ("POST", "", "{}"),
            ("POST", "fieldManager=x", r#"{"dryRun":["All"]}"#),
            ("POST", "dryRun=", ""),
            ("POST", "dryRun=All&dryRun=None", ""),
            ("POST", "dryRun=All&dry%52un=None", ""),
            ("POST", "xdryRun=All", ""),
            ("POST", "", options),
            ("PUT", "", options),
            ("PATCH", "", options),
            ("DELETE", "dryRun=All", "{}"),
            ("DELETE", "dryRun=All", "null"),
            ("DELETE", "dryRun=All", "# nothing"),
            ("DELETE", "dryRun=All", " "),
            ("DELETE", "dryRun=All", "k8s\u{0}"),
            ("DELETE", "", r#"{"dryRun":["None","All"]}"#),
            ("ODD", "dryRun=All", ""),
        ] {
            assert_eq!(sent_on(method, POD, query, body), Err(NO_DRY_RUN), "{method} {query} {body}");
        }
        for path in [
            "/api/v1/namespaces/db/serviceaccounts/a/token",
            "/odd",
            "/api/v1/namespaces/db/pods/a-0/binding",
        ] {
            assert_eq!(sent_on("POST", path, "dryRun=All", ""), Err(NO_DRY_RUN), "{path}");
        }
    }

    /// Streams do not pass, nor what an API server would read as one.
    #[test]
    fn nothing_gets_through_to_a_container() {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            for (path, why) in [
                (format!("{POD}/exec"), A_STREAM),
                (format!("{POD}/proxy/stop"), A_STREAM),
                ("/api/v1/nodes/n/proxy/run/db/a-0/mariadb".to_owned(), A_STREAM),
                (format!("{POD}/%70roxy"), ODD),
                ("/api/v1/nodes/n%2Fproxy%2Frun".to_owned(), ODD),
                ("/api/v1//nodes/n".to_owned(), ODD),
                ("/api/v1/x/../nodes/n".to_owned(), ODD),
                (format!("/{POD}"), ODD),
            ] {
                assert_eq!(sent_on(method, &path, "dryRun=All", ""), Err(why), "{method} {path}");
            }
        }
        for path in ["/", "/version", "/openapi/v3/apis/apps/v1", POD, "/api/v1/namespaces/db/pods/a-0/log"] {
            assert_eq!(sent_on("GET", path, "", "").map(|it| it.0).as_deref(), Ok("read"), "{path}");
        }
    }
}
