//! Option files are read line by line as MariaDB reads them.

use super::*;

/// Lists group, key, value and line of each setting.
fn all(text: &str) -> Vec<(&str, String, Option<String>, usize)> {
    let shown = |it: Setting<'_>| it.value.map(|value| value.look().to_owned());
    read(text).map(|it| (it.group, it.key.clone().into_owned(), shown(it.clone()), it.line)).collect()
}

#[allow(clippy::unnecessary_wraps, reason = "it is compared with values of type Option")]
fn value(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn reads_as_mariadb_does() {
    let text = "[galera]\n# a comment\n; another\n\n loose-WSREP-on = ON\nwsrep_sst_auth = \"root:a#b\"\n\
                wsrep_cluster_address=gcomm://# new\n[innodb ]\nwsrep_on=OFF\n[mysqld]\nskip-name-resolve # yes\n!include /x\na = b;c\n";
    assert_eq!(
        all(text),
        [
            ("galera", "wsrep_on".into(), value("ON"), 5),
            ("galera", "wsrep_sst_auth".into(), value("root:a#b"), 6),
            ("galera", "wsrep_cluster_address".into(), value("gcomm://"), 7),
            ("innodb", "wsrep_on".into(), value("OFF"), 9),
            ("mysqld", "skip_name_resolve".into(), None, 11),
            ("mysqld", "a".into(), value("b;c"), 13),
        ]
    );
    let last = |text, key| effective(text, key).map(|value| value.look().to_owned());
    assert_eq!(last(text, "wsrep_on"), value("ON"), "no server reads group [innodb]");
    assert_eq!(last("[mysqld]\na=1\n[mariadb-10.11]\na=2\n", "a"), value("2"), "later wins");
}

#[test]
fn prefixes_that_mean_on_or_off_are_read() {
    for (line, key, value) in [
        ("skip-wsrep-on", "wsrep_on", Some("0")),
        ("skip_wsrep_on=0", "wsrep_on", Some("1")),
        ("disable-wsrep-on", "wsrep_on", Some("0")),
        ("enable_wsrep_on", "wsrep_on", Some("1")),
        ("loose-skip-wsrep-on", "wsrep_on", Some("0")),
        ("skip-networking", "skip_networking", None),
        ("maximum_max_allowed_packet = 1M", "maximum_max_allowed_packet", Some("1M")),
        ("wsrep_on", "wsrep_on", None),
    ] {
        let text = format!("[mysqld]\n{line}\n");
        assert_eq!(all(&text), [("mysqld", key.to_owned(), value.map(str::to_owned), 2)], "{line}");
    }
}

#[test]
fn each_setting_has_the_place_of_its_value() {
    let text = "[mysqld]\r\n  a-b\t=\t'x y' # why\r\nc = \r\nd\r\n";
    let places: Vec<_> = read(text).map(|it| (it.key.into_owned(), &text[it.at])).collect();
    assert_eq!(places, [("a_b".into(), "'x y'"), ("c".into(), ""), ("d".into(), "")]);
}

#[test]
fn lines_at_which_a_server_stops_are_found() {
    let broken = |text: &str| {
        lines(text).find_map(|line| {
            if let OptionLine::Broken { line, what } = line { Some((line, what)) } else { None }
        })
    };
    assert_eq!(broken("# x\na = 1\n[mysqld]\n"), Some((2, "an option before any [group]")));
    assert_eq!(broken("[mysqld\na=1\n"), Some((1, "a group without its ]")));
    assert_eq!(broken("\u{feff}[mysqld]\na=1\n"), Some((1, "a byte order mark")));
    assert_eq!(broken("[mysqld]\n!includedir /x\na\n"), None);
    assert_eq!(lines("!includedir /x\n! include x\n!x\n").count(), 2);
}

#[test]
fn odd_texts_are_read_quickly_and_without_panic() {
    let long = format!("[mysqld]\na={}\n", "x\\\"#'".repeat(200_000));
    let many = format!("[mysqld]\n{}", "wsrep-x = 1\r\n".repeat(80_000));
    for text in [
        &*long,
        &many,
        "[g]\na=\"",
        "[",
        "]",
        "=",
        "[g\n=é\"",
        "\0",
        "[g]\na=b\0c\n",
        "[g]\n\u{a0}a=1",
        "[g]\n=\n",
    ] {
        let _ = lines(text).count();
    }
    assert_eq!(all("[g]\na=b\0c\n"), [("g", "a".to_owned(), value("b"), 2)]);
}
