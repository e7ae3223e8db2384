//! Applying the same manifests repeatedly, as people, CI and GitOps do, is never refused and changes nothing: neither with
//! `kubectl apply` nor with server-side apply, nor with the two by turns. The bootstrap node does not come back.

use crate::living_cluster::{self, Alive, BOOTSTRAP};

const CLIENT: &[&str] = &[];
const SERVER: &[&str] = &["--server-side"];
/// The flags needed where the other method was used before, with or without a guard.
const TAKE_OVER: &[&str] = &["--server-side", "--force-conflicts"];

impl Alive {
    /// Applies the manifests with these flags: they are admitted with one warning, and no bootstrap node starts.
    fn apply_again(&self, flags: &[&str]) {
        let output = self.apply(flags);
        assert_eq!(output.status, 0, "{flags:?}: {}", output.stderr);
        let warnings: Vec<&str> = output.stderr.lines().filter(|line| line.starts_with("Warning:")).collect();
        let [warning] = &warnings[..] else { panic!("{flags:?}: {}", output.stderr) };
        let words = [
            "Warning: [G04] Deployment ",
            ": kept at 0 replicas: ",
            "; remove this Deployment from your manifests",
        ];
        assert!(words.iter().all(|part| warning.contains(part)), "{warning}");
        assert_eq!(self.plane.get(&self.ns, BOOTSTRAP)["spec"]["replicas"], 0, "{flags:?}");
        assert_eq!(self.bootstrap_pods(), "", "{flags:?}: a bootstrap node runs");
    }

    /// Applies the manifests twice more with these flags: nothing is written, and no field changes its owner.
    fn assert_applying_changes_nothing(&self, flags: &[&str]) {
        self.changes_nothing(|| (0..2).for_each(|_| self.apply_again(flags)));
    }
}

#[test]
fn client_side_apply_can_be_repeated() {
    let alive = Alive::cluster("apply");
    alive.apply_again(CLIENT);
    alive.assert_applying_changes_nothing(CLIENT);
}

/// The cluster was never applied by the other method, so no conflict has to be forced.
#[test]
fn server_side_apply_can_be_repeated() {
    let alive = Alive::empty("apply");
    alive.apply(SERVER).succeeded();
    alive.until_formed();
    alive.until_bootstrap_removed();
    alive.apply_again(SERVER);
    alive.assert_applying_changes_nothing(SERVER);
}

#[test]
fn the_two_methods_can_be_alternated() {
    let alive = Alive::cluster("apply");
    alive.apply_again(CLIENT);
    let managers = || {
        let objects = alive.objects();
        let objects = objects.as_object().unwrap().values();
        objects.map(|it| it["metadata"]["managedFields"].as_array().unwrap().len()).collect::<Vec<_>>()
    };
    let mut seen = Vec::new();
    for _ in 0..2 {
        for flags in [TAKE_OVER, CLIENT] {
            alive.apply_again(flags);
        }
        seen.push(managers());
    }
    assert_eq!(seen[0], seen[1], "the number of field managers grows");
}

/// The bootstrap node is kept because nothing proves these members Synced: applying again neither starts nor stops anything.
#[test]
fn the_bootstrap_node_that_still_runs_is_left_alone() {
    let alive = Alive::empty("apply");
    let unproven = living_cluster::unproven();
    alive.apply_text(&unproven, CLIENT).succeeded();
    alive.until_formed();
    alive.changes_nothing(|| {
        for _ in 0..2 {
            let output = alive.apply_text(&unproven, CLIENT);
            assert_eq!((output.status, &*output.stderr), (0, ""));
        }
    });
}
