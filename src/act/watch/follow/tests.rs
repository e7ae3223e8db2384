//! A scripted API server and virtual time: which of its answers prove that the view is current, and which do not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::http::{self, Response};
use facts::settings::Settings;
use facts::view::Freshness;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use tower::service_fn;

use super::*;

/// The API server's reply to one request.
enum Reply {
    List(&'static str),
    /// A refusal with this status.
    Refused(u16),
    /// Lines of a watch, each this many milliseconds after the one before, and the end of the watch.
    Watch(Vec<(u64, &'static str)>, End),
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The regular end of a watch, after this many milliseconds.
    Clean(u64),
    Broken,
    Never,
}

const LIST: &str = r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}"#;
const EVENT: &str = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"5"}}}"#;
const BOOKMARK: &str = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
const EXPIRED: &str =
    r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old","reason":"Expired"}}"#;

/// The requests: "list", or the version from which a watch began, and its duration.
type RequestLog = Arc<Mutex<Vec<String>>>;

fn rds() -> Kind {
    crate::rulebook().kinds().named("otc.mcsps.de", "Rds")
}

fn api_server(script: Vec<Reply>) -> (Client, RequestLog) {
    let (asked, script) = (RequestLog::default(), Arc::new(Mutex::new(VecDeque::from(script))));
    let log = Arc::clone(&asked);
    let service = service_fn(move |request: http::Request<Body>| {
        let part = |name: &str| {
            let query = request.uri().query().unwrap_or_default();
            query.split('&').find_map(|it| it.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        let version = part("resourceVersion=");
        let watches = part("watch=") == "true";
        let entry =
            if watches { format!("from {version} for {}s", part("timeoutSeconds=")) } else { "list".into() };
        log.lock().unwrap().push(entry);
        let answer = script.lock().unwrap().pop_front();
        let code = if let Some(Reply::Refused(code)) = answer { code } else { 200 };
        async move { Ok::<_, std::io::Error>(Response::builder().status(code).body(body(answer)).unwrap()) }
    });
    (Client::new(service, "default"), asked)
}

type ScriptedFrame = Result<Frame<Bytes>, std::io::Error>;

fn body(answer: Option<Reply>) -> StreamBody<impl futures_util::Stream<Item = ScriptedFrame> + Send> {
    let (lines, end) = match answer {
        Some(Reply::List(text)) => (vec![(0, text)], End::Clean(0)),
        Some(Reply::Watch(lines, end)) => (lines, end),
        Some(Reply::Refused(_)) => (vec![], End::Clean(0)),
        // The script has ended.
        None => (vec![], End::Never),
    };
    StreamBody::new(stream::unfold((VecDeque::from(lines), Some(end)), async |(mut lines, end)| {
        if let Some((pause, line)) = lines.pop_front() {
            sleep(Duration::from_millis(pause)).await;
            return Some((Ok(Frame::data(format!("{line}\n").into())), (lines, end)));
        }
        match end? {
            End::Clean(pause) => sleep(Duration::from_millis(pause)).await,
            End::Broken => return Some((Err(std::io::Error::other("cut off")), (lines, None))),
            End::Never => std::future::pending().await,
        }
        None
    }))
}

/// Follows the script for this many seconds; returns the requests, and how current the view is then.
async fn after(seconds: u64, script: Vec<Reply>) -> (Vec<String>, Freshness) {
    followed(Kind::Service, guard(Settings::default()), seconds, script).await
}

fn guard(settings: Settings) -> Arc<Guard> {
    Arc::new(Guard::new(Arc::default(), settings, jiff::Timestamp::now))
}

async fn followed(
    kind: Kind,
    guard: Arc<Guard>,
    seconds: u64,
    script: Vec<Reply>,
) -> (Vec<String>, Freshness) {
    let (asked, freshness, _) = reported_by(kind, guard, seconds, script).await;
    (asked, freshness)
}

/// Returns a follower of Services.
fn follower(
    client: Client,
    guard: Arc<Guard>,
    freshness: &WatchFreshness,
    messages: mpsc::Sender<(usize, Message)>,
) -> Follower {
    let (url, freshness, relist) = ("/collection".to_owned(), freshness.clone(), Arc::default());
    Follower {
        client,
        kind: Kind::Service,
        url,
        selector: None,
        watch: 0,
        freshness,
        guard,
        relist,
        messages,
    }
}

/// Follows the script; also returns what the keeper receives about the kind.
async fn reported_by(
    kind: Kind,
    guard: Arc<Guard>,
    seconds: u64,
    script: Vec<Reply>,
) -> (Vec<String>, Freshness, Vec<&'static str>) {
    followed_again(Arc::default(), kind, guard, seconds, script).await
}

/// Does what `reported_by` does, with a flag that requests a new list.
async fn followed_again(
    relist: Arc<AtomicBool>,
    kind: Kind,
    guard: Arc<Guard>,
    seconds: u64,
    script: Vec<Reply>,
) -> (Vec<String>, Freshness, Vec<&'static str>) {
    let mut reports = Vec::new();
    let (client, asked) = api_server(script);
    let (sender, mut messages) = mpsc::channel(64);
    let freshness = WatchFreshness::new([true]);
    let follower = Follower { kind, relist, ..follower(client, guard, &freshness, sender) };
    let listening = async {
        while let Some((_, message)) = messages.recv().await {
            reports.extend(match message {
                Message::Serves(true) => Some("offered"),
                Message::Serves(false) => Some("not offered"),
                Message::Reachable(true) => Some("reachable"),
                Message::Reachable(false) => Some("unreachable"),
                Message::Listed => Some("listed"),
                _ => None,
            });
        }
    };
    let _ = timeout(Duration::from_secs(seconds), async { tokio::join!(follower.follow(), listening) }).await;
    let asked = asked.lock().unwrap().clone();
    (asked, freshness.freshness(), reports)
}

fn stale(freshness: Freshness) -> Option<i64> {
    match freshness {
        Freshness::Stale(age) => Some(age.as_secs()),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn rounds_that_end_as_planned_keep_the_view_current() {
    let round = || Reply::Watch(vec![], End::Clean(8_000));
    let first = Reply::Watch(vec![], End::Clean(1_000));
    let (asked, freshness) = after(24, vec![Reply::List(LIST), first, round(), round(), round()]).await;
    assert_eq!(asked, ["list", "from 1 for 1s", "from 1 for 8s", "from 1 for 8s", "from 1 for 8s"]);
    assert_eq!(freshness, Freshness::Current);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_cut_off_and_stale() {
    let first = Reply::Watch(vec![], End::Clean(1_000));
    let silent = Reply::Watch(vec![(100, EVENT)], End::Never);
    let (asked, freshness) = after(18, vec![Reply::List(LIST), first, silent]).await;
    assert_eq!(asked[2], "from 1 for 8s");
    assert!(
        asked[3..].iter().all(|it| it == "from 5 for 1s"),
        "the watch begins again, in short rounds: {asked:?}"
    );
    assert_eq!(stale(freshness), Some(16), "since the event");
}

/// After a break an event may be one of many that happened meanwhile; a bookmark, or the end of a round, comes after all of them.
#[tokio::test(start_paused = true)]
async fn after_a_break_only_a_bookmark_or_the_end_of_a_round_counts() {
    let broken = || Reply::Watch(vec![], End::Broken);
    let events = || Reply::Watch(vec![(100, EVENT), (100, EVENT)], End::Never);
    let first = || Reply::Watch(vec![], End::Clean(1_000));
    let script = |last| vec![Reply::List(LIST), first(), broken(), last];
    assert!(stale(after(18, script(events())).await.1).is_some());
    let bookmark = Reply::Watch(vec![(100, EVENT), (14_000, BOOKMARK)], End::Never);
    assert!(
        stale(after(18, script(bookmark)).await.1).is_some(),
        "a bookmark after the deadline of its round comes too late"
    );
    let bookmark = Reply::Watch(vec![(3_900, BOOKMARK)], End::Never);
    assert_eq!(after(20, script(bookmark)).await.1, Freshness::Current);
}

/// An API server that drops a slow reader ends the watch as if it had sent everything.
#[tokio::test(start_paused = true)]
async fn an_early_end_of_a_round_does_not_prove_a_current_view() {
    let first = Reply::Watch(vec![], End::Clean(1_000));
    let early = (0..20).map(|_| Reply::Watch(vec![(10, EVENT)], End::Clean(200)));
    let script = [Reply::List(LIST), first].into_iter().chain(early).collect();
    let (asked, freshness) = after(18, script).await;
    assert!(asked.len() > 10 && asked[4..].iter().all(|it| it == "from 5 for 1s"), "{asked:?}");
    assert!(stale(freshness).is_some(), "{freshness:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_listed_again() {
    let first = Reply::Watch(vec![], End::Clean(1_000));
    let expired = Reply::Watch(vec![(10, EXPIRED)], End::Clean(0));
    let (asked, freshness) = after(4, vec![Reply::List(LIST), first, expired, Reply::List(LIST)]).await;
    assert_eq!(asked, ["list", "from 1 for 1s", "from 1 for 8s", "list", "from 1 for 1s"]);
    assert_eq!(freshness, Freshness::Current);
}

/// A busy keeper takes nothing from a watch, and an API server sends nothing that is not taken.
#[tokio::test(start_paused = true)]
async fn events_that_wait_for_the_keeper_do_not_prove_a_current_view() {
    let events = vec![(100, EVENT), (100, EVENT), (100, EVENT)];
    let script = vec![
        Reply::List(LIST),
        Reply::Watch(vec![(100, BOOKMARK)], End::Clean(900)),
        Reply::Watch(events, End::Never),
    ];
    let ((client, asked), (sender, mut messages)) = (api_server(script), mpsc::channel(1));
    let (freshness, guard) = (WatchFreshness::new([true]), guard(Settings::default()));
    let follower = follower(client, guard, &freshness, sender);
    let busy = async {
        while !matches!(messages.recv().await, Some((_, Message::Listed))) {}
        sleep(Duration::from_secs(30)).await;
        while messages.try_recv().is_ok() {
            tokio::task::yield_now().await;
        }
        sleep(Duration::from_millis(100)).await;
        assert_eq!(stale(freshness.freshness()), Some(28), "since the bookmark and the first event");
        assert!(!asked.lock().unwrap().is_empty());
    };
    tokio::select! {
        () = follower.follow() => {}
        () = busy => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_fit_now_is_listed_again() {
    let round = |seconds: u64| Reply::Watch(vec![], End::Clean(seconds * 1_000));
    let script = vec![Reply::List(LIST), round(1), round(8), Reply::List(LIST), round(1)];
    let relist = Arc::<AtomicBool>::default();
    let ask = async {
        sleep(Duration::from_secs(5)).await;
        relist.store(true, Ordering::Relaxed);
    };
    let follow = followed_again(Arc::clone(&relist), Kind::Service, guard(Settings::default()), 12, script);
    let ((asked, ..), ()) = tokio::join!(follow, ask);
    assert_eq!(asked[..5], ["list", "from 1 for 1s", "from 1 for 8s", "list", "from 1 for 1s"]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_not_requested_until_its_pack_is_on() {
    let guard = guard(crate::rulebook().settings("packs: {rds: false}").unwrap());
    let (asked, freshness) = followed(rds(), Arc::clone(&guard), 20, vec![]).await;
    assert_eq!((asked, freshness), (vec![], Freshness::Current), "and the view does not wait for it");
    let switch = async {
        sleep(Duration::from_secs(20)).await;
        guard.settings.store(Arc::default());
    };
    let script = vec![Reply::List(LIST), Reply::Watch(vec![], End::Clean(1_000))];
    let followed = followed(rds(), Arc::clone(&guard), 25, script);
    let ((asked, freshness), ()) = tokio::join!(followed, switch);
    assert_eq!(asked, ["list", "from 1 for 1s"]);
    assert_eq!(freshness, Freshness::Current);
}

/// The kind's definition has a conversion webhook that is gone, or one that never answers.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_but_cannot_be_listed_is_not_absent() {
    let on = || guard(Settings::default());
    let refused = || Reply::Refused(500);
    let (.., reports) = reported_by(rds(), on(), 20, vec![refused(), refused()]).await;
    assert_eq!(reports, ["offered", "unreachable"]);
    let (.., reports) = reported_by(rds(), on(), 2, vec![refused(), Reply::List(LIST)]).await;
    assert_eq!(reports, ["offered", "unreachable", "offered", "listed", "reachable"]);
    let (.., reports) = reported_by(rds(), on(), 4, vec![]).await;
    assert_eq!(reports, ["offered", "unreachable"], "a list that hangs holds up nothing");
    let (.., reports) = reported_by(rds(), on(), 4, vec![Reply::Refused(404)]).await;
    assert_eq!(reports, ["not offered", "listed"]);
    // A single failure is not reported while the objects of the kind are known.
    let round = |end| Reply::Watch(vec![], end);
    let script =
        vec![Reply::List(LIST), round(End::Clean(1_000)), round(End::Broken), round(End::Clean(1_000))];
    assert_eq!(reported_by(rds(), on(), 3, script).await.2, ["offered", "listed"]);
    let (.., reports) = reported_by(Kind::Service, on(), 4, vec![refused()]).await;
    assert_eq!(reports, [""; 0], "for a kind that Galera needs, the freshness shows the failure");
}

/// A kind that is not installed, and an API server that restarts.
#[tokio::test(start_paused = true)]
async fn an_absent_kind_is_absent_again_after_an_outage() {
    let on = || guard(Settings::default());
    let (absent, outage) = (["not offered", "listed"], ["offered", "unreachable"]);
    let script = [404, 500, 500, 404].map(Reply::Refused).into();
    let (.., reports) = reported_by(rds(), on(), 30, script).await;
    assert_eq!(reports, [absent, outage, absent].concat());
    // A single failure is not reported, even after an outage.
    let script = [404, 500, 500, 404, 500, 404].map(Reply::Refused).into();
    let (.., reports) = reported_by(rds(), on(), 36, script).await;
    assert_eq!(reports, [absent, outage, absent].concat());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_switched_off_after_an_outage_is_absent() {
    let off = || crate::rulebook().settings("packs: {rds: false}").unwrap();
    let guard = guard(off());
    let switch = async {
        sleep(Duration::from_secs(1)).await;
        guard.settings.store(Arc::default());
        sleep(Duration::from_secs(10)).await;
        guard.settings.store(Arc::new(off()));
    };
    let script = [500, 500].map(Reply::Refused).into();
    let ((.., reports), ()) = tokio::join!(reported_by(rds(), Arc::clone(&guard), 40, script), switch);
    assert_eq!(reports, ["not offered", "listed", "offered", "unreachable", "not offered", "listed"]);
}
