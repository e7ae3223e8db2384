//! One replica: how long a reservation counts, and what is read from a Lease.

use super::ledger::{CLOCK_TOLERANCE, RESERVATION_LIFETIME};
use super::*;
use jiff::SignedDuration;
use tokio::time::advance;

fn member_removal(cluster: &str, pod: &str) -> MemberRemoval {
    MemberRemoval { cluster: Id::new("db", cluster), pod: pod.into(), uid: format!("uid-{pod}"), rule: "G02" }
}

/// Returns the clock of an API server that answered at once.
fn shown_now(date: Timestamp) -> ServerClock {
    ServerClock { date, asked: Instant::now(), answered: Instant::now() }
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1) - SignedDuration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_reservation_ends_by_itself_and_begins_again_when_the_removal_is_requested_again() {
    let reservations = ReservationStore::of_one_replica();
    let counts = || reservations.current() != Reservations::none();
    assert_eq!(reservations.reserve(&member_removal("a", "a-0"), |_| true).await, Reserving::Reserved);
    let lost =
        reservations.reserve(&member_removal("a", "a-1"), |known| *known == Reservations::none()).await;
    assert_eq!(lost, Reserving::Lost(reservations.current()));
    let just_before_expiry = Duration::from_secs(29);
    advance(just_before_expiry).await;
    assert!(counts());
    assert_eq!(reservations.reserve(&member_removal("a", "a-0"), |_| true).await, Reserving::Reserved);
    advance(just_before_expiry).await;
    assert!(counts());
    advance(Duration::from_secs(1)).await;
    assert!(!counts());
}

/// A reservation that has expired does not count again while its note stays in the Lease, however often the note is read.
#[tokio::test(start_paused = true)]
async fn an_expired_reservation_does_not_begin_again_when_it_is_read_again() {
    let (mut ledger, member_removal) = (Ledger::default(), member_removal("a", "a-0"));
    let (shard, note) = (shard_of(&member_removal.cluster), ReservationNote::of(&member_removal, 1, None));
    let all_over = |ledger: &Ledger| ledger.reservations(Instant::now()) == Reservations::none();
    let learn =
        |ledger: &mut Ledger, shard, notes| ledger.learn(shard, notes, Instant::now(), Instant::now());
    learn(&mut ledger, shard, vec![note.clone()]);
    advance(RESERVATION_LIFETIME).await;
    learn(&mut ledger, (shard + 1) % lease_names().count(), Vec::new());
    learn(&mut ledger, shard, vec![note.clone()]);
    assert!(all_over(&ledger));
    learn(&mut ledger, shard, Vec::new());
    learn(&mut ledger, shard, vec![note]);
    assert!(!all_over(&ledger), "the note had left the Lease, so this is a new reservation");
}

/// A replica that reads a note for the first time knows its age from the API server's clock. A note without a time, or with one
/// in the future, counts as long as one that was written now.
#[tokio::test(start_paused = true)]
async fn a_note_that_is_read_for_the_first_time_counts_from_when_it_was_written() {
    let member_removal = member_removal("a", "a-0");
    let tolerance = CLOCK_TOLERANCE.as_secs();
    for (at, counts) in [
        (Some(ago(24 * 3600)), 0),
        (Some(ago(30 + tolerance)), 0),
        (Some(ago(20 + tolerance)), 10),
        (Some(ago(0)), 30),
        (Some(ago(-3600)), 30),
        (Some(Timestamp::MIN), 0),
        (Some(Timestamp::MAX), 30),
        (None, 30),
    ] {
        let (mut ledger, note) = (Ledger::default(), ReservationNote::of(&member_removal, 1, at));
        ledger.observe_clock(Some(shown_now(ago(0))));
        ledger.learn(shard_of(&member_removal.cluster), vec![note], Instant::now(), Instant::now());
        let counts_for = |seconds| {
            ledger.reservations(Instant::now() + Duration::from_secs(seconds)) != Reservations::none()
        };
        let seen = (0..60).take_while(|seconds| counts_for(*seconds)).count();
        assert_eq!(seen, counts, "{at:?}");
    }
}

/// Even if another API server's clock is ahead, or the clock was set: a note that was missing at the last read of its Lease is
/// not older than that read.
#[tokio::test(start_paused = true)]
async fn a_note_is_no_older_than_the_last_look_at_its_lease() {
    let (mut ledger, member_removal) = (Ledger::default(), member_removal("a", "a-0"));
    let shard = shard_of(&member_removal.cluster);
    ledger.learn(shard, Vec::new(), Instant::now(), Instant::now());
    advance(Duration::from_secs(10)).await;
    ledger.observe_clock(Some(shown_now(ago(0))));
    let note = ReservationNote::of(&member_removal, 1, Some(ago(3600)));
    ledger.learn(shard, vec![note], Instant::now(), Instant::now());
    let counts_for =
        |seconds| ledger.reservations(Instant::now() + Duration::from_secs(seconds)) != Reservations::none();
    assert!(counts_for(19) && !counts_for(20));
}

/// That ends when every note that was written before the clock was set must have expired.
#[tokio::test(start_paused = true)]
async fn after_a_clock_change_notes_count_for_their_full_time() {
    let (mut ledger, member_removal) = (Ledger::default(), member_removal("a", "a-0"));
    ledger.observe_clock(Some(shown_now(ago(3600))));
    advance(Duration::from_secs(600)).await;
    ledger.observe_clock(Some(shown_now(ago(0))));
    let mut counts = |shard, times| {
        ledger.learn(
            shard,
            vec![ReservationNote::of(&member_removal, times, Some(ago(1800)))],
            Instant::now(),
            Instant::now(),
        );
        ledger.reservations(Instant::now()) != Reservations::none()
    };
    assert!(counts(0, 1));
    advance(RESERVATION_LIFETIME).await;
    assert!(!counts(1, 2));
}

/// The removal of a pod was reserved long ago, but the pod stayed. A replica that reads the note only now does not know that it
/// has expired for all other replicas.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_was_only_read_is_written_again() {
    let (mut ledger, member_removal) = (Ledger::default(), member_removal("a", "a-0"));
    let shard = shard_of(&member_removal.cluster);
    ledger.learn(shard, vec![ReservationNote::of(&member_removal, 1, None)], Instant::now(), Instant::now());
    let next = |ledger: &Ledger| ledger.next(&member_removal, true, Instant::now());
    let notes = vec![ReservationNote::of(&member_removal, 2, None)];
    assert_eq!(next(&ledger), LedgerStep::Write(notes.clone()));
    assert!(ledger.record_written(shard, notes, Instant::now(), Instant::now()));
    assert_eq!(next(&ledger), LedgerStep::Reserved, "this replica wrote the note a moment ago");
}

/// A process that was suspended for an hour, or took the time from another API server, writes a time that the answer proves
/// wrong: the pod may not leave yet.
#[tokio::test(start_paused = true)]
async fn a_note_with_a_wrong_time_reserves_nothing() {
    let member_removal = member_removal("a", "a-0");
    let shard = shard_of(&member_removal.cluster);
    for (wrote, right) in [(3600, false), (0, true), (-3600, false)] {
        let mut ledger = Ledger::default();
        ledger.observe_clock(Some(shown_now(ago(wrote))));
        let LedgerStep::Write(notes) = ledger.next(&member_removal, true, Instant::now()) else { panic!() };
        ledger.observe_clock(Some(shown_now(ago(0))));
        assert_eq!(ledger.record_written(shard, notes, Instant::now(), Instant::now()), right, "{wrote}");
        let next = ledger.next(&member_removal, true, Instant::now());
        assert_eq!(next == LedgerStep::Reserved, right, "{wrote}");
    }
}

#[test]
fn notes_are_read_as_they_were_written_and_invalid_ones_count_as_lost() {
    let notes = [
        ReservationNote::of(&member_removal("a", "a-0"), 1, None),
        ReservationNote::of(&member_removal("b", "b-2"), 7, Some(ago(1))),
    ];
    let lease = note::with(Lease::default(), &notes);
    assert_eq!(note::of(&lease), notes);
    for invalid in ["", "{}", "[1]", "[{\"pod\":\"a\"}]", "null"] {
        let mut lease = lease.clone();
        for text in lease.metadata.annotations.iter_mut().flat_map(|all| all.values_mut()) {
            invalid.clone_into(text);
        }
        assert_eq!(note::of(&lease), [ReservationNote::lost(None)], "{invalid}");
    }
}
