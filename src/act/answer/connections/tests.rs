//! Which connections may stay, for how long, and which are closed to make room.

use super::*;

fn at(seconds: u64, start: Instant) -> Instant {
    start + Duration::from_secs(seconds)
}

#[test]
fn each_stage_has_its_time() {
    let now = Instant::now();
    let connected = ConnectionProgress::new(now);
    let open = ConnectionProgress { open: true, ..connected.clone() };
    let served = ConnectionProgress { served: true, ..open.clone() };
    let begun = ConnectionProgress { begun: Some(at(95, now)), ..served.clone() };
    let stuck = ConnectionProgress { unread_since: Some(at(30, now)), ..served.clone() };
    let asking = ConnectionProgress { asked: Some(at(90, now)), ..served.clone() };
    for (what, it, fine, over, why) in [
        ("a handshake", connected, 5, 6, "handshake"),
        ("the first headers", open, 10, 11, "slow"),
        ("an idle connection", served, 120, 121, "idle"),
        ("headers that have begun", begun, 105, 106, "slow"),
        ("an answer that the client does not take", stuck, 35, 36, "slow"),
        ("a request without end", asking, 110, 111, "slow"),
    ] {
        assert_eq!(it.overdue(at(fine, now)), None, "{what}");
        assert_eq!(it.overdue(at(over, now)), Some(why), "{what}");
    }
}

#[test]
fn what_a_connection_is_worth() {
    let now = Instant::now();
    let open = ConnectionProgress { open: true, ..ConnectionProgress::new(now) };
    let idle = ConnectionProgress { served: true, ..open.clone() };
    let asks = |served: bool, second: u64| ConnectionProgress {
        served,
        asked: Some(at(second, now)),
        ..open.clone()
    };
    let stuck = ConnectionProgress { unread_since: Some(at(6, now)), ..idle.clone() };
    for (what, it, rank) in [
        ("nothing was asked yet", open.clone(), Some((EvictionRank::Unserved, now))),
        ("a first request that is slow", asks(false, 0), Some((EvictionRank::Unserved, now))),
        ("a request that is slow", asks(true, 7), Some((EvictionRank::Slow, at(7, now)))),
        ("an answer that the client does not take", stuck, Some((EvictionRank::Slow, at(6, now)))),
        ("an idle connection", idle, Some((EvictionRank::Idle, now))),
        ("a request that is not slow", asks(true, 8), Some((EvictionRank::Busy, now))),
        ("a proven caller", ConnectionProgress { proven: true, ..asks(true, 0) }, None),
    ] {
        assert_eq!(it.rank(at(10, now)), rank, "{what}");
    }
    assert!([EvictionRank::Unserved, EvictionRank::Slow, EvictionRank::Idle, EvictionRank::Busy].is_sorted());
}

/// However many requests are under way, and however slow they are, a new connection gets a slot.
#[test]
fn when_all_slots_are_taken_the_least_worth_makes_way() {
    let all = Connections::new(4, 1000);
    let slots = [(); 4].map(|()| all.enter(Instant::now()).unwrap());
    for slot in &slots {
        slot.connection.open(false);
        all.begin(&slot.connection).served = true;
    }
    slots[0].connection.progress().proven = true;
    let _asked = [all.begin(&slots[1].connection), all.begin(&slots[2].connection)];
    slots[1].connection.progress().asked = Instant::now().checked_sub(SLOW * 2);
    let mut newcomers = Vec::new();
    for (index, what) in [(1, "slow"), (3, "idle"), (2, "busy")] {
        assert!(!slots[index].connection.ends(), "{what}");
        let newcomer = all.enter(Instant::now()).unwrap();
        assert!(slots[index].connection.ends(), "{what}");
        newcomer.connection.progress().proven = true;
        newcomers.push(newcomer);
    }
    assert!(!slots[0].connection.ends() && all.enter(Instant::now()).is_none(), "proven callers stay");
}

#[test]
fn when_too_many_bytes_are_not_taken_the_connection_with_most_of_them_makes_way() {
    let all = Connections::new(8, 1000);
    let [greedy, modest, other, proven] = [(); 4].map(|()| all.enter(Instant::now()).unwrap());
    proven.connection.progress().proven = true;
    let answer = |slot: &Slot, bytes| {
        let mut answer = all.begin(&slot.connection);
        answer.holds(bytes);
        answer
    };
    let first = [answer(&greedy, 500), answer(&proven, 500)];
    assert!(!greedy.connection.ends());
    drop(first);
    let held = [answer(&greedy, 300), answer(&modest, 200), answer(&proven, 500)];
    assert!(!greedy.connection.ends(), "what was taken counts no more");
    let more = answer(&other, 50);
    assert!(greedy.connection.ends() && !modest.connection.ends() && !proven.connection.ends());
    drop(more);
    let _more = answer(&other, 190);
    assert!(!modest.connection.ends(), "what is ending makes room");
    let newcomer = all.enter(Instant::now()).unwrap();
    let _much = answer(&newcomer, 150);
    assert!(modest.connection.ends() && !other.connection.ends() && !newcomer.connection.ends());
    drop(held);
}
