//! Events as they are written: their times, their counts, and the length of their notes.

use std::convert::Infallible;

use axum::http::{Request, Response};
use kube::client::Body;
use serde_json::Value;
use tower::service_fn;

use super::*;

/// `kubectl get events --sort-by=.lastTimestamp` shows an Event, and a repeated one moves to the end.
#[tokio::test]
async fn an_event_contains_its_first_and_last_time() {
    let (asked, mut requests) = mpsc::unbounded_channel();
    let service = service_fn(move |request: Request<Body>| {
        let asked = asked.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
            asked.send((format!("{} {}", parts.method, parts.uri.path()), body)).unwrap();
            let answer = json!({ "metadata": {}, "involvedObject": {} }).to_string();
            Ok::<_, Infallible>(Response::new(Body::from(answer.into_bytes())))
        }
    });
    let (sender, notices) = channel();
    for _ in 0..2 {
        sender.send(entries_contested("gatera", "again".to_owned())).await.unwrap();
    }
    drop(sender);
    publish(Client::new(service, "db"), "a".to_owned(), notices).await;
    let (first, event) = requests.recv().await.unwrap();
    assert!(first.starts_with("POST /api/v1/namespaces/gatera/events"), "{first}");
    assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(1)));
    assert!(event["firstTimestamp"].is_string() && event["lastTimestamp"] == event["firstTimestamp"]);
    let (second, again) = requests.recv().await.unwrap();
    let path =
        format!("PATCH /api/v1/namespaces/gatera/events/{}", event["metadata"]["name"].as_str().unwrap());
    assert_eq!((second, &again["count"]), (path, &json!(2)));
    assert!(again["lastTimestamp"].as_str() >= event["lastTimestamp"].as_str(), "{again}");
}

/// The API server counts bytes, and refuses the whole Event if the note is too long.
#[test]
fn a_note_in_any_script_fits() {
    for text in ["a".repeat(2000), "я".repeat(700), format!("a{}", "я".repeat(700)), "short".to_owned()] {
        let note = truncated(&text);
        assert!(note.len() <= MAX_NOTE_BYTES && text.starts_with(&note), "{} bytes", note.len());
        assert!(note.len() + 4 > text.len().min(MAX_NOTE_BYTES), "{} bytes", note.len());
    }
}
