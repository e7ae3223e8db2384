//! How many members must stay so that the cluster keeps its majority.

/// Returns the smallest size that one step down from `size` may reach: a majority of the old members must remain after
/// the others have left, however abruptly. A cluster of two may shrink to one, but only in order: after an abrupt loss,
/// one of two is not a majority.
pub fn floor_of_one_step(size: i64) -> i64 {
    if size == 2 { 1 } else { size / 2 + 1 }
}

/// Returns whether a component of weight `size` survives after `graceful` members left in order and `abrupt` ones
/// vanished.
pub fn survives(size: i64, graceful: i64, abrupt: i64) -> bool {
    size > graceful + 2 * abrupt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_survives_even_if_all_members_above_it_crash() {
        for size in (1..200).filter(|size| *size != 2) {
            let leaving = size - floor_of_one_step(size);
            assert!(survives(size, 0, leaving), "{size}");
            assert!(!survives(size, 0, leaving + 1), "{size}: one more member could crash");
        }
    }

    #[test]
    fn the_figures_seen_on_real_clusters() {
        assert!(survives(3, 0, 1) && !survives(3, 0, 2), "three members survive one crash, not two");
        assert!(!survives(2, 0, 1) && survives(2, 1, 0), "two members survive an orderly stop, not a crash");
        assert_eq!(floor_of_one_step(2), 1, "otherwise two members could never become one");
        assert!(!survives(4, 0, 2), "four members survive as many crashes as three");
    }
}
