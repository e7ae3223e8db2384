//! Deadlines of connections, and which ones are closed to make room for others.

use super::*;

impl Connection {
    fn has_ended(&self) -> bool {
        self.end_reason.initialized()
    }
}

fn at(seconds: u64, start: Instant) -> Instant {
    start + Duration::from_secs(seconds)
}

#[test]
fn each_stage_has_its_deadline() {
    let now = Instant::now();
    let connected = ConnectionProgress::new(now);
    let open = ConnectionProgress { stage: ConnectionStage::Waiting, ..connected.clone() };
    let served = ConnectionProgress { served: true, ..open.clone() };
    let answering = ConnectionProgress { stage: ConnectionStage::Answering, ..served.clone() };
    let stuck = ConnectionProgress { taken: Some(at(3, now)), ..answering.clone() };
    for (what, it, fine, over, reason) in [
        ("a handshake", connected, 5, 6, "handshake"),
        ("the first headers", open, 10, 11, "slow"),
        ("an idle connection", served, 120, 121, "idle"),
        ("a request without end, or an answer that is read too slowly", answering, 20, 21, "slow"),
        ("an answer that the client does not read", stuck, 8, 9, "slow"),
    ] {
        assert_eq!(it.overdue(at(fine, now)), None, "{what}");
        assert_eq!(it.overdue(at(over, now)), Some(reason), "{what}");
    }
}

#[test]
fn connections_are_ranked_for_eviction() {
    let now = Instant::now();
    let open = ConnectionProgress { stage: ConnectionStage::Waiting, ..ConnectionProgress::new(now) };
    let idle = ConnectionProgress { served: true, ..open.clone() };
    let answering = |served: bool, second: u64| ConnectionProgress {
        served,
        stage: ConnectionStage::Answering,
        since: at(second, now),
        ..open.clone()
    };
    for (what, it, rank) in [
        ("no request yet", open.clone(), Some((EvictionRank::Unserved, now))),
        ("a first request that is slow", answering(false, 0), Some((EvictionRank::Unserved, now))),
        ("a request that is slow", answering(true, 7), Some((EvictionRank::Slow, at(7, now)))),
        ("an idle connection", idle, Some((EvictionRank::Idle, now))),
        ("a request that is not slow", answering(true, 8), Some((EvictionRank::Busy, at(8, now)))),
        ("a proven client", ConnectionProgress { proven: true, ..answering(true, 0) }, None),
    ] {
        assert_eq!(it.rank(at(10, now)), rank, "{what}");
    }
    assert!([EvictionRank::Unserved, EvictionRank::Slow, EvictionRank::Idle, EvictionRank::Busy].is_sorted());
}

/// A new connection gets a slot however many requests are in flight and however slow they are, unless all clients are proven.
#[test]
fn when_all_slots_are_taken_the_lowest_rank_is_evicted() {
    let all = Connections::new(4, 1000);
    let slots = [(); 4].map(|()| all.enter(Instant::now()).unwrap());
    for slot in &slots {
        slot.connection.open(false);
        all.begin(&slot.connection).served = true;
    }
    slots[0].connection.progress().proven = true;
    let _in_flight = [all.begin(&slots[1].connection), all.begin(&slots[2].connection)];
    slots[1].connection.progress().since = Instant::now().checked_sub(SLOW_AGE * 2).unwrap();
    let mut newcomers = Vec::new();
    for (index, what) in [(1, "slow"), (3, "idle"), (2, "busy")] {
        assert!(!slots[index].connection.has_ended(), "{what}");
        let newcomer = all.enter(Instant::now()).unwrap();
        assert!(slots[index].connection.has_ended(), "{what}");
        newcomer.connection.progress().proven = true;
        newcomers.push(newcomer);
    }
    assert!(!slots[0].connection.has_ended() && all.enter(Instant::now()).is_none(), "proven clients stay");
}

/// hyper may read the next request before it drops the body of an answer.
#[test]
fn the_end_of_an_answer_does_not_affect_the_next_request() {
    let all = Connections::new(1, 1000);
    let slot = all.enter(Instant::now()).unwrap();
    let mut first = all.begin(&slot.connection);
    first.begun = first.begun.checked_sub(SLOW_AGE).unwrap();
    first.piece_taken();
    let next = all.begin(&slot.connection);
    let since = slot.connection.progress().since;
    drop(first);
    let progress = slot.connection.progress().clone();
    assert_eq!((progress.stage, progress.since, progress.taken), (ConnectionStage::Answering, since, None));
    drop(next);
    assert_eq!(slot.connection.progress().stage, ConnectionStage::Waiting);
}

#[test]
fn when_too_many_bytes_are_unread_the_connection_that_held_most_for_longest_is_ended() {
    let all = Connections::new(8, 1000);
    let [greedy, modest, other, proven] = [(); 4].map(|()| all.enter(Instant::now()).unwrap());
    proven.connection.progress().proven = true;
    let answer = |slot: &Slot, bytes, seconds| {
        let answer = all.begin(&slot.connection);
        slot.connection.progress().since = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        answer.set_length(bytes);
        answer
    };
    let first = [answer(&greedy, 500, 1), answer(&proven, 500, 1)];
    assert!(!greedy.connection.has_ended());
    drop(first);
    let held = [answer(&greedy, 300, 10), answer(&modest, 150, 10), answer(&proven, 500, 10)];
    assert!(!greedy.connection.has_ended(), "an answer that was read no longer counts");
    let more = answer(&other, 100, 1);
    assert!(
        greedy.connection.has_ended() && !modest.connection.has_ended() && !proven.connection.has_ended()
    );
    drop(more);
    let _more = answer(&other, 290, 1);
    assert!(!modest.connection.has_ended(), "the bytes of an ended connection no longer count");
    let newcomer = all.enter(Instant::now()).unwrap();
    let _much = answer(&newcomer, 150, 1);
    assert!(modest.connection.has_ended(), "fewer bytes, but for longer");
    assert!(!other.connection.has_ended() && !newcomer.connection.has_ended());
    drop(held);
    assert_eq!(all.table().held_bytes, 440, "the bytes of ended connections are subtracted once");
}
