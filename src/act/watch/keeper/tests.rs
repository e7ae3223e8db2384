//! Tests of the keeper: the facts after each message.

use facts::revision::Revision;

use super::*;

fn keeper(kinds: &[Kind]) -> Keeper {
    let (text_requests, _) = mpsc::unbounded_channel();
    let sources = kinds.iter().map(|kind| WatchSource::new(*kind)).collect();
    Keeper::new(sources, text_requests, Facts::default())
}

fn pod(name: &str) -> Message {
    let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"gatera.dev/cluster":"a"}}}}}}"#);
    Message::Put(Box::new(Object::read(Kind::Pod, &json).unwrap()))
}

fn text(name: &str, kib: usize) -> Fetched {
    // The name makes each text unique.
    let text = format!("{name}{}", "x".repeat(kib << 10));
    let json = format!(r#"{{"metadata":{{"name":"{name}","namespace":"db"}},"data":{{"a":"{text}"}}}}"#);
    let Ok(Object::ConfigMap(map)) = Object::read(Kind::ConfigMap, &json) else {
        unreachable!("the kind is ConfigMap")
    };
    Fetched::Text(Box::new(map))
}

#[test]
fn the_keeper_knows_everything_when_every_list_is_complete() {
    let mut keeper = keeper(&[Kind::Pod, Kind::Node]);
    keeper.apply(0, Message::Listed);
    assert!(!keeper.knows_everything());
    keeper.apply(1, Message::Listed);
    assert!(keeper.knows_everything());
}

#[test]
fn an_object_that_a_new_list_does_not_name_is_gone() {
    let mut keeper = keeper(&[Kind::Pod]);
    for message in [
        Message::ListBegun,
        pod("a"),
        pod("b"),
        Message::Listed,
        Message::ListBegun,
        pod("b"),
        Message::Listed,
    ] {
        keeper.apply(0, message);
    }
    assert_eq!(keeper.facts.pods().map(|pod| &*pod.name).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn an_unreadable_object_is_remembered_until_it_is_readable_or_gone() {
    let mut keeper = keeper(&[Kind::Pod]);
    let bad = || {
        let problem = Object::read(Kind::Pod, r#"{"spec":{"containers":1}}"#).unwrap_err();
        Message::Unreadable(Id::new("", "a"), problem)
    };
    for message in
        [Message::ListBegun, pod("a"), bad(), Message::Listed, Message::ListBegun, bad(), Message::Listed]
    {
        keeper.apply(0, message);
    }
    assert_eq!(
        (keeper.facts.unreadable.len(), keeper.facts.pods().count()),
        (1, 1),
        "the last readable version is kept"
    );
    keeper.apply(0, pod("a"));
    assert_eq!((keeper.facts.unreadable.len(), keeper.facts.pods().count()), (0, 1));
    keeper.apply(0, bad());
    keeper.apply(0, Message::Gone(Id::new("", "a")));
    assert_eq!((keeper.facts.unreadable.len(), keeper.facts.pods().count()), (0, 0));
}

/// The readers of a ConfigMap and the ConfigMap itself may become known in any order; each version is fetched once.
#[test]
fn a_config_map_is_fetched_as_soon_as_a_workload_reads_it() {
    let (text_requests, mut wanted) = mpsc::unbounded_channel();
    let sources = [Kind::StatefulSet, Kind::Pod, Kind::ConfigMap].map(WatchSource::new).into();
    let mut keeper = Keeper::new(sources, text_requests, Facts::default());
    let version = |name: &str, version: &str| Message::Version(Id::new("db", name), version.to_owned());
    let put = |kind, json: String| Message::Put(Box::new(Object::read(kind, &json).unwrap()));
    let set = |reads: &str, rollout: &str| {
        let volumes = format!(r#"[{{"name":"conf","configMap":{{"name":"{reads}"}}}}]"#);
        let template = format!(
            r#"{{"metadata":{{"labels":{{"gatera.dev/cluster":"a"}}}},"spec":{{"volumes":{volumes}}}}}"#
        );
        let annotations = format!(r#"{{"gatera.dev/rollout":"{rollout}"}}"#);
        let meta = format!(r#"{{"name":"a","namespace":"db","annotations":{annotations}}}"#);
        put(Kind::StatefulSet, format!(r#"{{"metadata":{meta},"spec":{{"template":{template}}}}}"#))
    };
    let (one, two) = ("a".repeat(32), "b".repeat(32));
    let keep = format!("keep conf={one} instead of conf={two}");
    let snapshots: Vec<_> = Revision::read(&format!("conf={one}")).unwrap().snapshots().collect();
    let revision = format!(r#"{{"gatera.dev/revision":"other={one}"}}"#);
    let labels = r#"{"gatera.dev/cluster":"a"}"#;
    let pod = format!(
        r#"{{"metadata":{{"name":"a-0","namespace":"db","labels":{labels},"annotations":{revision}}}}}"#
    );
    let given = Revision::read(&format!("other={one}")).unwrap().snapshots().next().unwrap();
    let mut fetches = |keeper: &mut Keeper, source, message| {
        keeper.apply(source, message);
        let requested: Vec<_> = std::iter::from_fn(|| wanted.try_recv().ok()).collect();
        for id in &requested {
            keeper.apply(2, Message::Fetched(id.clone(), text(&id.name, 1)));
        }
        requested.into_iter().map(|id| id.name).collect::<Vec<_>>()
    };
    assert_eq!(fetches(&mut keeper, 2, version("conf", "1")), [""; 0], "nothing reads it yet");
    assert_eq!(fetches(&mut keeper, 0, set("conf", "")), ["conf"], "now a StatefulSet reads it");
    assert_eq!(fetches(&mut keeper, 0, set("conf", "")), [""; 0], "this version is known");
    assert_eq!(fetches(&mut keeper, 2, version("conf", "2")), ["conf"], "it has changed");
    assert_eq!(fetches(&mut keeper, 2, version("late", "1")), [""; 0]);
    assert_eq!(fetches(&mut keeper, 0, set("late", "")), ["late"], "the StatefulSet reads another ConfigMap");
    assert_eq!(fetches(&mut keeper, 2, version("conf", "3")), [""; 0], "nothing reads it any more");
    assert_eq!(fetches(&mut keeper, 2, Message::Gone(Id::new("db", "late"))), [""; 0]);
    assert_eq!(fetches(&mut keeper, 2, version("late", "1")), ["late"], "it was created again");
    assert_eq!(fetches(&mut keeper, 2, version(&snapshots[0], "1")), [""; 0]);
    assert_eq!(fetches(&mut keeper, 0, set("late", &keep)), [&*snapshots[0]], "an annotation names it");
    assert_eq!(fetches(&mut keeper, 1, put(Kind::Pod, pod)), [""; 0]);
    assert_eq!(fetches(&mut keeper, 2, version(&given, "1")), [&*given], "a pod runs with it");
}

#[test]
fn only_a_new_last_report_of_a_pod_is_a_change() {
    let mut keeper = keeper(&[Kind::Pod]);
    let json = r#"{"metadata":{"name":"a","uid":"1","labels":{"gatera.dev/cluster":"a"}},
        "spec":{"containers":[{"name":"mariadb","image":"mariadb:10.11"}]},
        "status":{"containerStatuses":[{"name":"mariadb","started":true,"state":{"running":{"startedAt":"2026-12-01T09:00:00Z"}}}]}}"#;
    assert!(keeper.apply(0, Message::Put(Box::new(Object::read(Kind::Pod, json).unwrap()))));
    let probe_failures = |states: &[&str]| {
        let event = |state: &&str| MemberEvent {
            about: Id::new("", "a"),
            uid: "1".to_owned(),
            at: "2026-12-01T09:30:00Z".parse().unwrap(),
            message: format!("Readiness probe failed: the server is {state}\n"),
        };
        Message::MemberEvents(Topic::Probes, states.iter().map(event).collect())
    };
    assert!(keeper.apply(0, probe_failures(&["JOINING", "CONNECTED"])));
    assert!(!keeper.apply(0, probe_failures(&["JOINING", "CONNECTED"])), "the same reports were known");
    assert!(keeper.apply(0, probe_failures(&["JOINING", "CONNECTED", "DISCONNECTED"])));
    assert!(!keeper.apply(0, Message::MemberEvents(Topic::Probes, Vec::new())));
}

#[test]
fn an_object_of_two_selectors_is_gone_when_both_report_it() {
    let mut keeper = keeper(&[Kind::Pod, Kind::Pod]);
    keeper.apply(0, pod("a"));
    keeper.apply(1, pod("a"));
    keeper.apply(0, Message::Gone(Id::new("", "a")));
    assert_eq!(keeper.facts.pods().count(), 1);
    keeper.apply(1, Message::Gone(Id::new("", "a")));
    assert_eq!(keeper.facts.pods().count(), 0);
}

/// Returns a StatefulSet that reads these ConfigMaps.
fn reader(namespace: &str, names: &[String]) -> Message {
    let volumes: Vec<_> =
        names.iter().map(|name| format!(r#"{{"name":"{name}","configMap":{{"name":"{name}"}}}}"#)).collect();
    let labels = r#""metadata":{"labels":{"gatera.dev/cluster":"a"}}"#;
    let json = format!(
        r#"{{"metadata":{{"name":"a","namespace":"{namespace}"}},"spec":{{"template":{{{labels},"spec":{{"volumes":[{}]}}}}}}}}"#,
        volumes.join(",")
    );
    Message::Put(Box::new(Object::read(Kind::StatefulSet, &json).unwrap()))
}

fn keeper_of_texts() -> (Keeper, mpsc::UnboundedReceiver<Id>) {
    let (text_requests, wanted) = mpsc::unbounded_channel();
    let sources = [Kind::StatefulSet, Kind::ConfigMap].map(WatchSource::new).into();
    (Keeper::new(sources, text_requests, Facts::default()), wanted)
}

fn exists(namespace: &str, name: &str, version: &str) -> Message {
    Message::Version(Id::new(namespace, name), version.to_owned())
}

fn fetched(id: &Id, kib: usize) -> Message {
    let Fetched::Text(mut map) = text(&id.name, kib) else { unreachable!("the answer is a text") };
    map.metadata.namespace.clone_from(&id.namespace);
    Message::Fetched(id.clone(), Fetched::Text(map))
}

/// ConfigMaps of one namespace do not delay those of another, and the number that is fetched is bounded.
#[tokio::test(start_paused = true)]
async fn the_texts_of_a_namespace_are_bounded_and_do_not_delay_those_of_others() {
    let (mut keeper, mut wanted) = keeper_of_texts();
    let names: Vec<_> = (0..300).map(|number| format!("map-{number:03}")).collect();
    for name in &names {
        keeper.apply(1, exists("mine", name, "1"));
    }
    keeper.apply(0, reader("mine", &names));
    let yours = ["a".to_owned(), "b".to_owned()];
    keeper.apply(0, reader("yours", &yours));
    for name in &yours {
        keeper.apply(1, exists("yours", name, "1"));
    }
    let mut served = Vec::new();
    while let Ok(id) = wanted.try_recv() {
        keeper.apply(1, fetched(&id, 0));
        served.push(id.to_string());
    }
    assert_eq!(served[..4], ["mine/map-000", "mine/map-001", "yours/a", "yours/b"]);
    assert_eq!((served.len(), &*served[257]), (258, "mine/map-255"));
    assert!(keeper.contents.awaited_since().is_none());
    let unreadable =
        |keeper: &Keeper| keeper.facts.unreadable.keys().map(|(_, id)| id.clone()).collect::<Vec<_>>();
    assert_eq!((unreadable(&keeper).len(), &*unreadable(&keeper)[0].name), (44, "map-256"));
    keeper.apply(1, exists("mine", "map-299", "2"));
    assert!(wanted.try_recv().is_err(), "it is still beyond the limit");
    keeper.apply(1, Message::Gone(Id::new("mine", "map-007")));
    let next = wanted.try_recv().unwrap();
    assert_eq!(&*next.name, "map-256");
    keeper.apply(1, fetched(&next, 0));
    assert_eq!((unreadable(&keeper).len(), &*unreadable(&keeper)[0].name), (43, "map-257"));
    keeper.apply(0, Message::Gone(Id::new("mine", "a")));
    assert!(unreadable(&keeper).is_empty());
}

/// A ConfigMap that the API server does not send is missing in its own namespace, and the view stays current.
#[tokio::test(start_paused = true)]
async fn a_text_that_does_not_arrive_is_missing_and_the_view_stays_current() {
    let (mut keeper, mut wanted) = keeper_of_texts();
    keeper.apply(1, exists("db", "conf", "1"));
    keeper.apply(1, exists("other", "conf", "1"));
    keeper.apply(0, reader("db", &["conf".to_owned()]));
    keeper.apply(0, reader("other", &["conf".to_owned()]));
    (0..2).for_each(|source| _ = keeper.apply(source, Message::Listed));
    let (stuck, other) = (wanted.try_recv().unwrap(), wanted.try_recv().unwrap());
    keeper.apply(1, fetched(&other, 1));
    assert!(!keeper.knows_everything());
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(keeper.apply_time() && keeper.knows_everything());
    assert!(!keeper.apply_time(), "nothing has changed since");
    let missing: Vec<_> = keeper.facts.unreadable.iter().map(|((_, id), why)| (id, why)).collect();
    assert_eq!(missing, [(&stuck, &LATE)]);
    keeper.apply(1, fetched(&stuck, 1));
    assert!(keeper.facts.unreadable.is_empty());
    assert!(keeper.facts.uid(Kind::ConfigMap, &stuck).is_some());
}

/// A ConfigMap that did not fit is fetched at most once a second, and only when no other is awaited.
#[tokio::test(start_paused = true)]
async fn a_config_map_without_room_is_not_fetched_after_every_write() {
    let (mut keeper, mut wanted) = keeper_of_texts();
    keeper.apply(0, reader("db", &["large".to_owned(), "small".to_owned()]));
    let mut fetches = 0;
    for version in 0..100 {
        keeper.apply(1, exists("db", "large", &version.to_string()));
        while let Ok(id) = wanted.try_recv() {
            fetches += 1;
            keeper.apply(1, fetched(&id, 600));
        }
        tokio::time::advance(Duration::from_millis(30)).await;
    }
    assert_eq!(fetches, 1 + 3);
    tokio::time::advance(Duration::from_secs(1)).await;
    keeper.apply(1, exists("db", "small", "1"));
    assert_eq!(wanted.try_recv().unwrap().name, "small", "it is fetched first");
    keeper.apply(1, exists("db", "large", "100"));
    assert!(wanted.try_recv().is_err());
    keeper.apply(1, fetched(&Id::new("db", "small"), 1));
    assert_eq!(wanted.try_recv().unwrap().name, "large");
    keeper.apply(1, fetched(&Id::new("db", "large"), 1));
    assert!(keeper.facts.unreadable.is_empty(), "it has become smaller");
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_room_is_listed_again_when_room_was_freed() {
    let sources: Vec<_> = [Kind::Service, Kind::Pod].map(WatchSource::new).into();
    let relist: Vec<_> = sources.iter().map(|it| Arc::clone(&it.relist)).collect();
    let (text_requests, _wanted) = mpsc::unbounded_channel();
    let mut keeper = Keeper::new(sources, text_requests, Facts::default().with_memory(128 << 20));
    let service = |name: &str| {
        let label = "x".repeat(100_000);
        let meta = format!(r#"{{"name":"{name}","namespace":"db","labels":{{"a":"{label}"}}}}"#);
        Message::Put(Box::new(Object::read(Kind::Service, &format!(r#"{{"metadata":{meta}}}"#)).unwrap()))
    };
    (0..100).for_each(|number| _ = keeper.apply(0, service(&format!("s-{number}"))));
    let listed_again = async |keeper: &mut Keeper| {
        tokio::time::advance(RELIST_INTERVAL).await;
        keeper.apply_time();
        [0, 1].map(|source| relist[source].swap(false, Ordering::Relaxed))
    };
    assert_eq!(listed_again(&mut keeper).await, [false, false], "nothing was freed");
    keeper.apply(0, Message::Gone(Id::new("db", "s-0")));
    assert_eq!(listed_again(&mut keeper).await, [true, false]);
    assert_eq!(listed_again(&mut keeper).await, [false, false]);
}

#[test]
fn a_config_map_that_nothing_reads_causes_no_new_world() {
    let (mut keeper, _wanted) = keeper_of_texts();
    keeper.apply(0, reader("db", &["conf".to_owned()]));
    assert!(!keeper.apply(1, Message::ListBegun));
    assert!(!keeper.apply(1, exists("db", "other", "1")));
    assert!(keeper.apply(1, exists("db", "conf", "1")));
}

/// At most two fetches of a namespace are under way at a time, the kept texts are bounded, and a deleted ConfigMap makes room.
#[test]
fn a_stateful_set_that_reads_a_hundred_large_config_maps_uses_little_memory() {
    let (mut keeper, mut wanted) = keeper_of_texts();
    let names: Vec<_> = (0..100).map(|number| format!("map-{number:03}")).collect();
    for name in &names {
        keeper.apply(1, exists("db", name, "1"));
    }
    keeper.apply(0, reader("db", &names));
    let mut serve = |keeper: &mut Keeper| {
        let mut served = Vec::new();
        while let Ok(id) = wanted.try_recv() {
            assert!(wanted.len() < 2, "{} more", wanted.len());
            let kib = if id.name == "map-000" { 900 } else { 500 };
            keeper.apply(1, Message::Fetched(id.clone(), text(&id.name, kib)));
            served.push(id.name);
        }
        served
    };
    assert_eq!(serve(&mut keeper).len(), 100);
    let kept = |keeper: &Keeper| {
        let kept = |name: &&String| keeper.facts.uid(Kind::ConfigMap, &Id::new("db", name)).is_some();
        names.iter().filter(kept).map(|name| &name[4..]).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((kept(&keeper), keeper.facts.unreadable.len()), ("001 002 003 004".to_owned(), 96));
    assert!(keeper.contents.awaited_since().is_none(), "the others are known not to fit");
    keeper.apply(1, Message::Gone(Id::new("db", "map-002")));
    assert_eq!(serve(&mut keeper), ["map-005"]);
    assert_eq!(kept(&keeper), "001 003 004 005");
    keeper.apply(0, Message::Gone(Id::new("db", "a")));
    assert_eq!(
        (kept(&keeper), keeper.facts.unreadable.len()),
        (String::new(), 0),
        "nothing reads them any more"
    );
}
