//! Replicas, one cluster, one Lease, and every order of events: the real [`ReservationStore`] over links that stall and lose
//! answers, while replicas restart, the Lease is deleted, and clocks are set.
//!
//! Laws: no two members are allowed to leave within the lifetime of a reservation; no member is allowed to leave without a note;
//! no refusal relies on a note that has expired. The number of a run determines its course; `GATERA_SEARCH_RUNS` sets how many
//! runs there are. Replicas read no wall clock, so only the clocks of the API servers matter: two, a second apart. In half of the
//! runs they are set by an hour, forward or back, while no reservation counts; in the other half, once at any time. In that
//! half, each replica has read the Lease before, because a new replica judges the age of notes by these clocks alone; and the
//! clock is set only once, because a replica that reads nothing in between cannot notice that a clock was set and set back.

use std::sync::Arc;

use facts::galera::adopt::Adoption;
use facts::settings::Settings;
use facts::view::{Facts, Freshness, View, World};
use jiff::SignedDuration;
use objects::{Kind, Object};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::ledger::RESERVATION_LIFETIME;
use super::*;

/// The slack in ages: answers take time, dates are whole seconds, and clocks may differ by some seconds.
const SLACK: Duration = Duration::from_secs(12);

/// The greatest age of the note behind a permission: the answer takes time, and the same removal may be requested again.
const MAX_NOTE_AGE: Duration = Duration::from_secs(4);
/// The amount by which a clock is set.
const AN_HOUR: Duration = Duration::from_hours(1);

/// A SplitMix64 generator of random numbers.
#[derive(Clone)]
struct Random(Arc<Lock<u64>>);

impl Random {
    fn below(&self, most: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    async fn pause(&self, longest: &[u64]) {
        let longest = longest[usize::try_from(self.below(longest.len() as u64)).unwrap()];
        sleep(Duration::from_millis(self.below(longest))).await;
    }
}

/// The API server: its objects, and what it has seen.
struct Server {
    lease: Option<Lease>,
    version: u64,
    began: Instant,
    /// The amount by which its clock was set, in seconds.
    set: i64,
    /// The time at which its clock was set.
    set_at: Instant,
    /// The pod of each note, and the time at which the note was written.
    written: Vec<(String, Instant)>,
    /// The time until which no refusal is too old: a Lease was deleted, or notes are ahead of a clock that was set back.
    unknown_until: Instant,
}

impl Server {
    fn shows(&self) -> Timestamp {
        let seconds = i64::try_from(self.began.elapsed().as_secs()).unwrap() + self.set;
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
    }

    /// Returns whether a replica that starts now knows as much as one that ran before.
    fn may_start_replica(&self) -> bool {
        self.lease.is_some() && self.set_at.elapsed() > RESERVATION_LIFETIME + SLACK
    }

    fn note(&mut self, note: &ReservationNote) {
        self.written.push((note.pod.clone(), Instant::now()));
        let slack = SignedDuration::try_from(SLACK).unwrap();
        if note.at.is_some_and(|at| at > self.shows() + slack) {
            self.unknown_until = Instant::now() + AN_HOUR;
        }
    }
}

#[derive(Clone)]
struct UnreliableStore {
    server: Arc<Lock<Server>>,
    random: Random,
}

impl UnreliableStore {
    /// Completes a request even if its sender has given up.
    async fn ask<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Server) -> kube::Result<T> + Send + 'static,
    ) -> kube::Result<(T, Option<Timestamp>)> {
        const USUAL: [u64; 8] = [20, 20, 20, 20, 20, 600, 3_000, 20_000];
        let store = self.clone();
        let asked = tokio::spawn(async move {
            store.random.pause(&USUAL).await;
            let answer = {
                let mut server = store.server.lock().unwrap();
                let date =
                    server.shows() + SignedDuration::from_secs(i64::try_from(store.random.below(2)).unwrap());
                operation(&mut server).map(|answer| (answer, Some(date)))
            };
            store.random.pause(&USUAL).await;
            answer
        });
        asked.await.unwrap()
    }
}

impl LeaseStore for UnreliableStore {
    async fn read(&self, _: &str) -> kube::Result<(Option<Lease>, Option<Timestamp>)> {
        self.ask(|server| Ok(server.lease.clone())).await
    }

    async fn write(&self, _: &str, lease: &Lease) -> kube::Result<(Lease, Option<Timestamp>)> {
        let mut lease = lease.clone();
        self.ask(move |server| {
            let existing = server.lease.as_ref().and_then(|it| it.metadata.resource_version.clone());
            if existing != lease.metadata.resource_version {
                let status = kube::core::Status { code: 409, ..kube::core::Status::default() };
                return Err(kube::Error::Api(status.boxed()));
            }
            server.version += 1;
            lease.metadata.resource_version = Some(server.version.to_string());
            note::of(&lease).first().into_iter().for_each(|it| server.note(it));
            server.lease = Some(lease.clone());
            Ok(lease)
        })
        .await
    }
}

/// The outcome of one request.
#[derive(Debug)]
struct Answered {
    pod: String,
    at: Instant,
    allowed: bool,
    /// The pod whose reservation caused the refusal.
    besides: Option<String>,
    /// Whether the request was refused because a Lease was deleted.
    unsure: bool,
    /// The time at which the API server wrote the note that counts.
    written: Option<Instant>,
}

/// Requests a removal as `judge.rs` does.
async fn ask(
    replica_store: Arc<ReservationStore<UnreliableStore>>,
    store: UnreliableStore,
    world: Arc<World>,
    pod: u64,
) -> Answered {
    let settings = Settings::default();
    let view = View::new(&world, Timestamp::UNIX_EPOCH, &settings);
    let cluster = view.cluster("db", "galera").unwrap();
    let pod = format!("galera-{pod}");
    let besides =
        |known: &Reservations| known.other_leaving(cluster, &pod).map(|(other, _)| other.to_owned());
    let member_removal =
        MemberRemoval { cluster: cluster.id.clone(), pod: pod.clone(), uid: pod.clone(), rule: "G02" };
    let first = besides(&replica_store.current());
    let (allowed, besides, unsure) = match first {
        Some(other) => (false, Some(other), false),
        None => match replica_store.reserve(&member_removal, |known| besides(known).is_none()).await {
            Reserving::Reserved => (true, None, false),
            Reserving::Lost(known) => {
                // A process may be paused anywhere.
                store.random.pause(&[1, 3_000]).await;
                (besides(&known).is_none(), besides(&known), false)
            }
            Reserving::Unknown(why) => (false, None, why.contains("was deleted")),
        },
    };
    // A note without a pod records that the Lease was deleted; it is written when a replica notices that.
    let pod_of_note = besides.as_deref().unwrap_or(if unsure { "" } else { &pod });
    let written =
        store.server.lock().unwrap().written.iter().rfind(|(of, _)| of == pod_of_note).map(|(_, at)| *at);
    Answered { at: Instant::now(), allowed, besides, unsure, written, pod }
}

fn world() -> World {
    let mut facts = Facts::of(&Adoption::default());
    let labels = json!({ "gatera.dev/cluster": "galera" });
    let spec = json!({ "containers": [{ "name": "mariadb", "image": "mariadb:11.8" }] });
    let template = json!({ "metadata": { "labels": labels }, "spec": spec });
    let meta = json!({ "name": "galera", "namespace": "db" });
    let set = json!({ "metadata": meta, "spec": { "replicas": 3, "template": template } });
    facts.put(Object::read(Kind::StatefulSet, &set.to_string()).unwrap());
    for pod in ["galera-0", "galera-1", "galera-2"] {
        let owner = json!({ "kind": "StatefulSet", "name": "galera", "controller": true });
        let meta = json!({ "name": pod, "namespace": "db", "uid": pod, "labels": labels, "ownerReferences": [owner] });
        let pod = json!({ "metadata": meta, "spec": spec });
        facts.put(Object::read(Kind::Pod, &pod.to_string()).unwrap());
    }
    World::build(facts, Freshness::Current)
}

/// Plays one run; returns all answers in order.
async fn run(seed: u64, world: &Arc<World>) -> Result<Vec<Answered>, String> {
    let random = Random(Arc::new(Lock::new(seed)));
    let now = Instant::now();
    let server = Server {
        lease: None,
        version: 0,
        began: now,
        set: 0,
        set_at: now,
        written: vec![],
        unknown_until: now,
    };
    let server = Arc::new(Lock::new(server));
    let store = UnreliableStore { server: Arc::clone(&server), random: random.clone() };
    let at_any_time = random.below(2) == 0;
    let new = || {
        let replica_store = ReservationStore::new(Some(store.clone()), Default::default());
        let known = server.lock().unwrap();
        if let Some(lease) = known.lease.as_ref().filter(|_| at_any_time) {
            let (now, mut ledger) = (Instant::now(), replica_store.ledger());
            ledger.observe_clock(server_clock(Some(known.shows()), now, now));
            ledger.learn(shard_of(&Id::new("db", "galera")), note::of(lease), now, now);
        }
        Arc::new(replica_store)
    };
    let blank = Lease { metadata: ownership::metadata("gatera", "gatera", "it"), spec: None };
    store.write("it", &blank).await.map_err(|error| chain(&error))?;
    let mut replicas: Vec<_> = (0..2 + random.below(2)).map(|_| new()).collect();
    let (mut asked, mut all) = (JoinSet::new(), Vec::new());
    for _ in 0..24 {
        random.pause(&[300, 300, 300, 3_000, 33_000, 90_000]).await;
        let replica = usize::try_from(random.below(replicas.len() as u64)).unwrap();
        match random.below(16) {
            0 | 1 if at_any_time && !server.lock().unwrap().may_start_replica() => {}
            0 | 1 => replicas[replica] = new(),
            2 => {
                let mut server = server.lock().unwrap();
                server.lease = None;
                server.unknown_until = server.unknown_until.max(Instant::now());
            }
            3 => {
                let mut server = server.lock().unwrap();
                let quiet =
                    server.written.last().is_none_or(|(_, at)| at.elapsed() > RESERVATION_LIFETIME + SLACK);
                let may = if at_any_time { server.set == 0 } else { quiet };
                if may {
                    (server.set, server.set_at) =
                        (server.set + [3600, -3600][usize::from(random.below(2) == 0)], Instant::now());
                    // The age of notes is unknown then.
                    server.unknown_until = Instant::now() + AN_HOUR;
                }
            }
            _ => {
                let replica_store = Arc::clone(&replicas[replica]);
                asked.spawn(ask(replica_store, store.clone(), Arc::clone(world), random.below(3)));
            }
        }
        while let Some(answered) = asked.try_join_next() {
            check_laws(&mut all, answered.unwrap(), &server.lock().unwrap())?;
        }
    }
    while let Some(answered) = asked.join_next().await {
        check_laws(&mut all, answered.unwrap(), &server.lock().unwrap())?;
    }
    Ok(all)
}

fn check_laws(all: &mut Vec<Answered>, it: Answered, server: &Server) -> Result<(), String> {
    let other = all.iter().find(|other| {
        let (first, second) = if other.at < it.at { (*other, &it) } else { (&it, *other) };
        let both = first.allowed && second.allowed && first.pod != second.pod;
        both && first.written.is_none_or(|at| second.at < at + RESERVATION_LIFETIME)
    });
    if let Some(other) = other {
        return Err(format!("two members were allowed to leave: {other:?} and {it:?}"));
    }
    if it.allowed && it.written.is_none_or(|at| it.at > at + MAX_NOTE_AGE) {
        return Err(format!("a member was allowed to leave without a note: {it:?}"));
    }
    let since = it.written.into_iter().chain([server.unknown_until]).max();
    let late = since.is_some_and(|since| it.at > since + RESERVATION_LIFETIME + SLACK);
    if (it.besides.is_some() || it.unsure) && late {
        return Err(format!("refused because of an expired note: {it:?}"));
    }
    all.push(it);
    Ok(())
}

#[test]
fn in_every_order_one_member_leaves_at_a_time_and_no_expired_note_refuses_it() {
    let runs = std::env::var("GATERA_SEARCH_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let world = Arc::new(world());
    let (mut allowed, mut besides, mut unsure) = (0, 0, 0);
    for seed in 0..runs {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let all = runtime.unwrap().block_on(run(seed, &world));
        let all = all.unwrap_or_else(|law| panic!("run {seed}: {law}"));
        let count = |is_counted: &dyn Fn(&&Answered) -> bool| all.iter().filter(is_counted).count();
        allowed += count(&|it| it.allowed);
        besides += count(&|it| it.besides.is_some());
        unsure += count(&|it| it.unsure);
    }
    eprintln!(
        "{runs} runs: {allowed} allowed, {besides} refused beside another, {unsure} because a Lease was deleted"
    );
    assert!(runs < 100 || allowed > 100 && besides > 100 && unsure > 10, "{allowed} {besides} {unsure}");
}
