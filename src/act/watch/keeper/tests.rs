//! The keeper, message by message.

use decide::revision::Revision;

use super::*;

fn keeper(kinds: &[Kind]) -> Keeper {
    let (want, _) = mpsc::unbounded_channel();
    let sources = kinds.iter().map(|kind| Source::new(*kind)).collect();
    Keeper::new(sources, want, Facts::default())
}

fn pod(name: &str) -> Message {
    let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"gatera.dev/cluster":"a"}}}}}}"#);
    Message::Put(Box::new(Object::read(Kind::Pod, &json).unwrap()))
}

fn text(name: &str, kib: usize) -> Answer {
    let text = "x".repeat(kib << 10);
    let json = format!(r#"{{"metadata":{{"name":"{name}","namespace":"db"}},"data":{{"a":"{text}"}}}}"#);
    let Ok(Object::ConfigMap(map)) = Object::read(Kind::ConfigMap, &json) else { unreachable!("it is one") };
    Answer::Text(Box::new(map))
}

#[test]
fn nothing_is_said_before_every_list_is_complete() {
    let mut keeper = keeper(&[Kind::Pod, Kind::Node]);
    keeper.hear(0, Message::Listed);
    assert!(!keeper.knows_everything());
    keeper.hear(1, Message::Listed);
    assert!(keeper.knows_everything());
}

#[test]
fn what_a_new_list_does_not_name_is_gone() {
    let mut keeper = keeper(&[Kind::Pod]);
    for told in
        [Message::Begun, pod("a"), pod("b"), Message::Listed, Message::Begun, pod("b"), Message::Listed]
    {
        keeper.hear(0, told);
    }
    assert_eq!(keeper.facts.pods().map(|pod| &*pod.name).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn what_cannot_be_read_is_remembered_until_it_can_or_is_gone() {
    let mut keeper = keeper(&[Kind::Pod]);
    let odd = || {
        let problem = Object::read(Kind::Pod, r#"{"spec":{"containers":1}}"#).unwrap_err();
        Message::Unreadable(Id::new("", "a"), problem)
    };
    for told in [Message::Begun, pod("a"), odd(), Message::Listed, Message::Begun, odd(), Message::Listed] {
        keeper.hear(0, told);
    }
    assert_eq!(
        (keeper.facts.unreadable.len(), keeper.facts.pods().count()),
        (1, 1),
        "the last that was read stays"
    );
    keeper.hear(0, pod("a"));
    assert_eq!((keeper.facts.unreadable.len(), keeper.facts.pods().count()), (0, 1));
    keeper.hear(0, odd());
    keeper.hear(0, Message::Gone(Id::new("", "a")));
    assert_eq!((keeper.facts.unreadable.len(), keeper.facts.pods().count()), (0, 0));
}

/// Who reads, and what exists, in any order; and every version once.
#[test]
fn a_config_map_is_asked_for_as_soon_as_somebody_reads_it() {
    let (want, mut wanted) = mpsc::unbounded_channel();
    let sources = [Kind::StatefulSet, Kind::Pod, Kind::ConfigMap].map(Source::new).into();
    let mut keeper = Keeper::new(sources, want, Facts::default());
    let version = |name: &str, version: &str| Message::Version(Id::new("db", name), version.to_owned());
    let put = |kind, json: String| Message::Put(Box::new(Object::read(kind, &json).unwrap()));
    let set = |reads: &str, note: &str| {
        let volumes = format!(r#"[{{"name":"conf","configMap":{{"name":"{reads}"}}}}]"#);
        let template = format!(
            r#"{{"metadata":{{"labels":{{"gatera.dev/cluster":"a"}}}},"spec":{{"volumes":{volumes}}}}}"#
        );
        let marks = format!(r#"{{"gatera.dev/rollout":"{note}"}}"#);
        let meta = format!(r#"{{"name":"a","namespace":"db","annotations":{marks}}}"#);
        put(Kind::StatefulSet, format!(r#"{{"metadata":{meta},"spec":{{"template":{template}}}}}"#))
    };
    let (one, two) = ("a".repeat(32), "b".repeat(32));
    let keeps = format!("keep conf={one} instead of conf={two}");
    let copies: Vec<_> = Revision::read(&format!("conf={one}")).unwrap().copies().collect();
    let revision = format!(r#"{{"gatera.dev/revision":"other={one}"}}"#);
    let labels = r#"{"gatera.dev/cluster":"a"}"#;
    let pod = format!(
        r#"{{"metadata":{{"name":"a-0","namespace":"db","labels":{labels},"annotations":{revision}}}}}"#
    );
    let given = Revision::read(&format!("other={one}")).unwrap().copies().next().unwrap();
    let mut asked = |keeper: &mut Keeper, source, told| {
        keeper.hear(source, told);
        let asked: Vec<_> = std::iter::from_fn(|| wanted.try_recv().ok()).collect();
        for id in &asked {
            keeper.hear(2, Message::Fetched(id.clone(), text(&id.name, 1)));
        }
        asked.into_iter().map(|id| id.name).collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut keeper, 2, version("conf", "1")), [""; 0], "nobody reads it");
    assert_eq!(asked(&mut keeper, 0, set("conf", "")), ["conf"], "its reader comes later");
    assert_eq!(asked(&mut keeper, 0, set("conf", "")), [""; 0], "it is known");
    assert_eq!(asked(&mut keeper, 2, version("conf", "2")), ["conf"], "it changed");
    assert_eq!(asked(&mut keeper, 2, version("late", "1")), [""; 0]);
    assert_eq!(asked(&mut keeper, 0, set("late", "")), ["late"], "another one is read");
    assert_eq!(asked(&mut keeper, 2, version("conf", "3")), [""; 0], "nobody reads this one any more");
    assert_eq!(asked(&mut keeper, 2, Message::Gone(Id::new("db", "late"))), [""; 0]);
    assert_eq!(asked(&mut keeper, 2, version("late", "1")), ["late"], "it was made again");
    assert_eq!(asked(&mut keeper, 2, version(&copies[0], "1")), [""; 0]);
    assert_eq!(asked(&mut keeper, 0, set("late", &keeps)), [&*copies[0]], "a person asks for a copy");
    assert_eq!(asked(&mut keeper, 1, put(Kind::Pod, pod)), [""; 0]);
    assert_eq!(asked(&mut keeper, 2, version(&given, "1")), [&*given], "a pod was given this copy");
}

#[test]
fn only_the_last_words_of_a_pod_are_news() {
    let mut keeper = keeper(&[Kind::Pod]);
    let json = r#"{"metadata":{"name":"a","uid":"1","labels":{"gatera.dev/cluster":"a"}},
        "spec":{"containers":[{"name":"mariadb","image":"mariadb:10.11"}]},
        "status":{"containerStatuses":[{"name":"mariadb","started":true,"state":{"running":{"startedAt":"2026-12-01T09:00:00Z"}}}]}}"#;
    assert!(keeper.hear(0, Message::Put(Box::new(Object::read(Kind::Pod, json).unwrap()))));
    let said = |states: &[&str]| {
        let event = |state: &&str| MemberEvent {
            about: Id::new("", "a"),
            uid: "1".to_owned(),
            at: "2026-12-01T09:30:00Z".parse().unwrap(),
            message: format!("Readiness probe failed: the server is {state}\n"),
        };
        Message::Said(Topic::Probes, states.iter().map(event).collect())
    };
    assert!(keeper.hear(0, said(&["JOINING", "CONNECTED"])));
    assert!(
        !keeper.hear(0, said(&["JOINING", "CONNECTED"])),
        "it goes back and forth, and ends where it was"
    );
    assert!(keeper.hear(0, said(&["JOINING", "CONNECTED", "DISCONNECTED"])));
    assert!(!keeper.hear(0, Message::Said(Topic::Probes, Vec::new())));
}

#[test]
fn what_two_selectors_know_is_gone_when_both_say_so() {
    let mut keeper = keeper(&[Kind::Pod, Kind::Pod]);
    keeper.hear(0, pod("a"));
    keeper.hear(1, pod("a"));
    keeper.hear(0, Message::Gone(Id::new("", "a")));
    assert_eq!(keeper.facts.pods().count(), 1);
    keeper.hear(1, Message::Gone(Id::new("", "a")));
    assert_eq!(keeper.facts.pods().count(), 0);
}

/// Two are under way at a time, what is kept is bounded, and what goes makes room.
#[test]
fn a_set_that_names_a_hundred_large_config_maps_costs_little() {
    let (want, mut wanted) = mpsc::unbounded_channel();
    let sources = [Kind::StatefulSet, Kind::ConfigMap].map(Source::new).into();
    let mut keeper = Keeper::new(sources, want, Facts::default());
    let names: Vec<_> = (0..100).map(|number| format!("map-{number:03}")).collect();
    for name in &names {
        keeper.hear(1, Message::Version(Id::new("db", name), "1".to_owned()));
    }
    let volumes: Vec<_> =
        names.iter().map(|name| format!(r#"{{"name":"{name}","configMap":{{"name":"{name}"}}}}"#)).collect();
    let labels = r#""metadata":{"labels":{"gatera.dev/cluster":"a"}}"#;
    let json = format!(
        r#"{{"metadata":{{"name":"a","namespace":"db"}},"spec":{{"template":{{{labels},"spec":{{"volumes":[{}]}}}}}}}}"#,
        volumes.join(",")
    );
    keeper.hear(0, Message::Put(Box::new(Object::read(Kind::StatefulSet, &json).unwrap())));
    let mut serve = |keeper: &mut Keeper| {
        let mut served = Vec::new();
        while let Ok(id) = wanted.try_recv() {
            assert!(wanted.len() < 2, "{} more", wanted.len());
            let kib = if id.name == "map-000" { 900 } else { 500 };
            keeper.hear(1, Message::Fetched(id.clone(), text(&id.name, kib)));
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
    assert!(keeper.contents.lack().is_none(), "they are known by name");
    keeper.hear(1, Message::Gone(Id::new("db", "map-002")));
    assert_eq!(serve(&mut keeper), ["map-005"]);
    assert_eq!(kept(&keeper), "001 003 004 005");
    keeper.hear(0, Message::Gone(Id::new("db", "a")));
    assert_eq!(
        (kept(&keeper), keeper.facts.unreadable.len()),
        (String::new(), 0),
        "nothing reads them any more"
    );
}
