//! Values that the chart refuses, with the words that say how to correct them.

use super::{INSTANCE, template};

/// Each row has a bad value and the message that it must produce.
#[test]
fn bad_values_are_refused_with_an_explanation() {
    let long = format!("auth.rootPassword={}", "x".repeat(129));
    for (flag, words) in [
        (
            "nodeCount=0",
            "nodeCount 0 would stop the whole cluster, and no member could start it again by itself; set nodeCount to 3 or more",
        ),
        ("nodeCount=-1", "nodeCount -1 would stop the whole cluster"),
        (
            "nodeCount=1",
            "nodeCount 1: fewer than 3 members cannot lose one and continue; set nodeCount to 3, or for a test allowEvenOrSmall=true",
        ),
        (
            "nodeCount=4",
            "nodeCount 4: an even number of members can split into halves, and both stop; set nodeCount to 3 or 5, or for a test allowEvenOrSmall=true",
        ),
        (
            "nodeCount=33",
            "nodeCount 33: each member applies every write, and the address list of more than 31 does not fit into a line of an option file; set nodeCount to 31 or fewer",
        ),
        ("nodeCount=abc", "at '/nodeCount': got string, want integer"),
        ("nodecount=5", "additional properties 'nodecount' not allowed"),
        ("antiAffinity=yes", "at '/antiAffinity': got string, want boolean"),
        ("antiAffinity=1", "at '/antiAffinity': got number, want boolean"),
        (
            "volumeSize=10M",
            "volumeSize 10M is too small: an empty server with its logs and its write-set cache needs most of 1Gi; set volumeSize to 1Gi or more",
        ),
        ("volumeSize=1G", "volumeSize 1G is too small"),
        ("volumeSize=1023Mi", "volumeSize 1023Mi is too small"),
        ("volumeSize=8GB", "volumeSize \"8GB\" is not a size: write it like 8Gi or 500Gi"),
        ("volumeSize=8", "at '/volumeSize': got number, want string"),
        (
            "image.tag=latest",
            "image.tag \"latest\" is not a version: members that restart on different days would run different servers; set image.tag to a version",
        ),
        ("initImage.tag=", "initImage.tag \"\" is not a version"),
        ("ports.mysql=80", "at '/ports/mysql': minimum: got 80, want 1,024"),
        (
            "ports.sst=4567",
            "ports [3306 4567 4567 4568]: a server cannot listen twice at one; give mysql, sst, replication and ist a port each",
        ),
        (
            "config=port = 3307",
            "config sets port: probes and Services would not know of it; take it out, and set ports.mysql",
        ),
        (
            "ports.ist=5568,config=wsrep-provider-options=gcs.fc_limit=64",
            "ports.ist 5568 is not the next after ports.replication 4567, so it is given with wsrep_provider_options on the command line, where those in config do not count; set ports.ist to 4568, or take wsrep_provider_options out of config",
        ),
        ("gcacheSize=plenty", "at '/gcacheSize': 'plenty' does not match pattern"),
        (
            "auth.rootPassword=pässword",
            "auth.rootPassword holds a character that is not printable ASCII (a line break, a tab, an accent): option files and clients do not agree on those; choose another",
        ),
        ("auth.sstPassword=a\tb", "auth.sstPassword holds a character that is not printable ASCII"),
        ("auth.sstPassword=a\nb", "auth.sstPassword holds a character that is not printable ASCII"),
        (&long, "auth.rootPassword has 129 characters; 128 are the limit"),
        (
            "auth.existingSecret=mine,auth.rootPassword=hunter2",
            "auth.rootPassword and auth.existingSecret are both set: the Secret mine holds the passwords; take auth.rootPassword out",
        ),
        (
            "auth.password=hunter2",
            "auth.password is set, and auth.username is not: a password needs a user; set auth.username",
        ),
        (
            "auth.username=sst",
            "auth.username \"sst\" is an account that the server or this chart creates; choose another",
        ),
        (
            "bootstrap.scripts.readme=x",
            "bootstrap.scripts has the name \"readme\": the image runs files that end in .sh or .sql; rename it",
        ),
        ("podSecurity=privileged", "at '/podSecurity': value must be one of 'baseline', 'restricted'"),
    ] {
        let output = template(INSTANCE, &[&format!("--set={flag}")]);
        assert_ne!(output.status, 0, "{flag} is accepted");
        assert!(output.stderr.contains(words), "{flag}: {words:?} is not in:\n{}", output.stderr);
        for hidden in ["pässword", "hunter2", "xxx", "a\tb", "a\nb"] {
            assert!(!output.stderr.contains(hidden), "a password is shown: {}", output.stderr);
        }
    }
    // Values at the limits are accepted.
    for flag in [
        "nodeCount=31",
        "nodeCount=4,allowEvenOrSmall=true",
        "nodeCount=1,allowEvenOrSmall=true",
        "volumeSize=1Gi",
        "volumeSize=1.5Ti",
        "volumeSize=1073741824k",
        "image.tag=10.11.8@sha256:0123",
        "ports.replication=4600,ports.ist=4601,config=wsrep_provider_options=gcs.fc_limit=64",
        // As in an upgrade with the values of a release from before `ports` existed.
        "ports=null",
    ] {
        template(INSTANCE, &[&format!("--set={flag}")]).succeeded();
    }
}

#[test]
fn a_release_name_that_makes_invalid_object_names_is_refused() {
    let long = "a".repeat(46);
    for (name, words) in [
        (&*long, format!("instance name \"{long}\" has 46 characters: the members' label controller-revision-hash, {long}-galera- and 10 more, would have 64, and 63 are the limit; choose a name of at most 45 characters")),
        ("2db", "instance name \"2db\": Services are named after it, so it must begin with a letter and contain only a-z, 0-9 and -".to_owned()),
        ("a.b", "instance name \"a.b\": Services are named after it".to_owned()),
    ] {
        let output = template(name, &[]);
        assert!(output.status != 0 && output.stderr.contains(&words), "{output}");
    }
    template(&long[..45], &[]).succeeded();
}
