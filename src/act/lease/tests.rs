//! Three replicas, a store whose answers stall, and virtual time: two replicas never lead at the same time.

use std::sync::{Arc, Mutex};

use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{sleep, timeout};

use super::*;
use crate::act::lease_store::Dated;

#[test]
fn a_replica_may_write_a_lease_that_is_free_or_its_own_or_whose_holder_is_silent() {
    let after = Duration::from_secs;
    for (holder, unchanged, may) in [
        ("", 0, true),
        ("me", 0, true),
        ("me", 100, true),
        ("other", 0, false),
        ("other", 14, false),
        ("other", 15, true),
    ] {
        assert_eq!(may_write(holder, "me", after(unchanged)), may, "{holder} after {unchanged}s");
    }
}

/// The API server behind a link that stalls: a request, its answer, or both may take long.
#[derive(Clone)]
struct StallingStore {
    server: Arc<Mutex<Option<Lease>>>,
    /// The state of the random number generator.
    stalls: Arc<Mutex<u64>>,
}

impl StallingStore {
    /// Waits: usually some milliseconds, sometimes seconds, sometimes longer than any timeout.
    async fn stall(&self) {
        let random_number = random_number(&mut self.stalls.lock().unwrap());
        let longest = match random_number % 10 {
            0..7 => 20,
            7..9 => 5_000,
            _ => 60_000,
        };
        sleep(Duration::from_millis((random_number >> 8) % longest)).await;
    }
}

/// Returns the next number of a SplitMix64 generator.
fn random_number(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Carries out a request to its end, even if its sender no longer waits for the answer.
async fn sent<T: Send + 'static>(what: impl Future<Output = T> + Send + 'static) -> T {
    tokio::spawn(what).await.unwrap()
}

impl LeaseStore for StallingStore {
    async fn read(&self, _name: &str) -> kube::Result<Dated<Option<Lease>>> {
        let store = self.clone();
        sent(async move {
            store.stall().await;
            let lease = store.server.lock().unwrap().clone();
            store.stall().await;
            Ok((lease, None))
        })
        .await
    }

    async fn write(&self, _name: &str, lease: &Lease) -> kube::Result<Dated<Lease>> {
        let (store, mut lease) = (self.clone(), lease.clone());
        sent(async move {
            store.stall().await;
            let outcome = {
                let mut server = store.server.lock().unwrap();
                let known = server.as_ref().and_then(|it| it.metadata.resource_version.clone());
                if known == lease.metadata.resource_version {
                    let next = known.map_or(1, |version| version.parse::<u64>().unwrap() + 1);
                    lease.metadata.resource_version = Some(next.to_string());
                    *server = Some(lease.clone());
                    Ok((lease, None))
                } else {
                    let status = kube::core::Status { code: 409, ..kube::core::Status::default() };
                    Err(kube::Error::Api(status.boxed()))
                }
            };
            store.stall().await;
            outcome
        })
        .await
    }
}

#[test]
fn never_two_leaders_however_the_link_stalls() {
    let mut terms = 0;
    for seed in 0..100 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        terms += runtime.block_on(five_minutes(seed));
    }
    assert!(terms > 500, "only {terms} terms: the stalls ended too few for the test to prove anything");
}

/// Runs three replicas for five minutes of virtual time. Returns how often one of them began to lead.
async fn five_minutes(seed: u64) -> usize {
    let server = Arc::<Mutex<Option<Lease>>>::default();
    let (_close, closing) = watch::channel(false);
    let replicas: Vec<_> = [(0, "a"), (1, "b"), (2, "c")]
        .into_iter()
        .map(|(index, me)| {
            let stalls = Arc::new(Mutex::new(seed << 8 | index));
            let store = StallingStore { server: Arc::clone(&server), stalls };
            let (seat, leading) = seat(Gauge::default());
            let turns = Election { store, blank: Lease::default(), me: me.into(), seen: None };
            tokio::spawn(turns.run(seat, closing.clone()));
            leading
        })
        .collect();
    let (mut terms, mut before) = (0, None);
    for _ in 0..6_000 {
        sleep(Duration::from_millis(50)).await;
        let lead: Vec<_> = (0..3).filter(|index| replicas[*index].holds()).collect();
        assert!(lead.len() < 2, "seed {seed}: {lead:?} lead together");
        let now = lead.first().copied();
        terms += usize::from(now.is_some() && now != before);
        before = now;
    }
    terms
}

async fn announced(leading: &mut Leading) -> bool {
    timeout(Duration::from_millis(1), leading.changed()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_term_ends_while_an_answer_is_awaited() {
    let gauge = Gauge::default();
    let (seat, mut leading) = seat(gauge.clone());
    seat.take(Instant::now() + TERM);
    assert!(leading.holds() && announced(&mut leading).await && gauge.get() == 1);
    seat.take(Instant::now() + TERM + TERM);
    assert!(!announced(&mut leading).await, "a renewal is not announced");
    seat.stepping_down_in_time(sleep(TERM)).await;
    assert!(leading.holds(), "the term was renewed");
    seat.stepping_down_in_time(sleep(Duration::from_secs(60))).await;
    assert!(!leading.holds() && announced(&mut leading).await && gauge.get() == 0);
    seat.take(Instant::now());
    assert!(!announced(&mut leading).await, "a term that is over does not begin");
}

#[tokio::test(start_paused = true)]
async fn a_replica_gives_up_only_its_own_lease() {
    let store = StallingStore { server: Arc::default(), stalls: Arc::default() };
    *store.server.lock().unwrap() = Some(renewed(Lease::default(), "other"));
    give_up(&store, "me").await.unwrap();
    assert_eq!(holder(store.server.lock().unwrap().as_ref().unwrap()), "other");
    give_up(&store, "other").await.unwrap();
    assert_eq!(holder(store.server.lock().unwrap().as_ref().unwrap()), "");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_not_awaited_does_not_end_a_term() {
    let store = StallingStore { server: Arc::default(), stalls: Arc::default() };
    let mut election = Election { store, blank: Lease::default(), me: "me".into(), seen: None };
    assert!(election.turn().await.unwrap());
    let _cancelled = timeout(Duration::from_millis(1), election.turn()).await.unwrap_err();
    sleep(Duration::from_secs(200)).await;
    assert!(election.turn().await.unwrap(), "a conflict with its own write");
}
