//! The options that matter to a Galera cluster: the class of each, and why. The rows are sorted by key; a key of two classes has
//! two rows.
//!
//! Owns: the table and its lookups. Must not know: files, rules, verdicts. Options of the provider are keys with a dot.
//! A key that can be changed at any time on one member alone has no row.

/// An option with its class.
#[derive(Debug)]
pub struct Key {
    /// The name in its canonical spelling.
    pub name: &'static str,
    /// The condition that the option must meet.
    pub class: Class,
    pub why: &'static str,
    /// The beginning of the way out.
    pub instead: &'static str,
    /// A function that adds the rest of the way out. Its second argument names the cluster as gatera's commands take it.
    rest: Rest,
}

type Rest = fn(WayOut, &str) -> WayOut;

/// A condition that an option must meet.
#[derive(Debug)]
pub enum Class {
    /// The value must not be one of these, with which the member does not start, does not replicate, or splits the
    /// cluster.
    Deny(BadValue),
    /// The value should not be one of these, which have a cost that users should know.
    Warn(BadValue),
    /// The option belongs to one member, so it must not be where all members read it.
    Node,
    /// The value is fixed for the life of the data. Lists the server's default values, if they are known.
    Format(&'static [&'static str]),
    /// The value must be the same on every member, but differs while members restart with another value one by one.
    Cluster {
        /// The server's default values.
        default: &'static [&'static str],
        /// Whether members with different values cannot form one cluster.
        fatal: bool,
    },
    /// The option must stay set: without it a server has one of these values, with which it cannot join a cluster or cannot read
    /// its data.
    Kept(&'static [&'static str]),
}

/// A description of bad values.
#[derive(Debug)]
pub enum BadValue {
    Any,
    /// One of these, in any spelling.
    Is(&'static [&'static str]),
    /// Any value but these.
    Not(&'static [&'static str]),
    /// A list that contains one of these.
    Among(&'static [&'static str]),
    /// Switched on; a bare key counts.
    On,
    Off,
    /// An address that is reachable from the same pod only.
    Local,
    /// A list that does not end with a comma.
    Closed,
    /// A value that is not the number of a port.
    NoPort,
}

use super::value::{same, switch};
use crate::way_out::{CommandLine, WayOut, say};
use BadValue::{Among, Any, Closed, Is, Local, NoPort, Not, Off, On};
use Class::{Cluster, Deny, Format, Kept, Node, Warn};

impl BadValue {
    /// Returns whether this value is bad.
    pub fn is(&self, value: Option<&str>) -> bool {
        let text = value.unwrap_or_default().trim();
        let one_of = |known: &[&str]| known.iter().any(|it| same(text, it));
        match self {
            Self::Any => true,
            Self::Is(bad) => one_of(bad),
            Self::Not(good) => !one_of(good),
            Self::Among(bad) => text.split(',').any(|word| bad.iter().any(|it| same(word.trim(), it))),
            Self::On => value.is_none() || switch(text) == Some(true),
            Self::Off => value.is_some() && switch(text) == Some(false),
            Self::Local => {
                let host =
                    text.rsplit_once("://").map_or(text, |(_, host)| host.trim_start_matches('[').trim());
                host == "::1" || ["127.", "::1]", "localhost"].iter().any(|begin| host.starts_with(begin))
            }
            Self::Closed => !text.is_empty() && !text.ends_with(','),
            // A value that a shell or an init container fills in is not known.
            Self::NoPort => text.parse::<u16>().is_err() && !text.contains(['$', '{', '%', '@', '<']),
        }
    }
}

/// Returns the rows of this key, which may be of more than one class.
pub fn rows(key: &str) -> &'static [Key] {
    let first = KEYS.partition_point(|row| row.name < key);
    let count = KEYS[first..].partition_point(|row| row.name == key);
    &KEYS[first..first + count]
}

/// Returns whether a rule judges this key.
pub fn is_judged(key: &str) -> bool {
    // No key has fewer than three letters. This saves a search for each line of a hostile text that consists of short lines.
    key.len() > 2 && KEYS.binary_search_by(|row| row.name.cmp(key)).is_ok()
}

/// Returns whether this is probably an option of a server: it is in the table, or has a usual name or prefix.
pub fn is_server_option(key: &str) -> bool {
    const PREFIXES: [&str; 12] = [
        "aria_",
        "binlog_",
        "character_set_",
        "collation_",
        "gtid_",
        "innodb_",
        "log_",
        "performance_schema",
        "query_cache_",
        "slave_",
        "thread_",
        "wsrep_",
    ];
    const NAMES: [&str; 14] = [
        "bind_address",
        "datadir",
        "default_storage_engine",
        "expire_logs_days",
        "key_buffer_size",
        "max_allowed_packet",
        "max_connections",
        "max_heap_table_size",
        "plugin_load_add",
        "server_id",
        "skip_name_resolve",
        "sql_mode",
        "table_open_cache",
        "tmp_table_size",
    ];
    is_judged(key) || NAMES.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns whether the value of this key may be printed: it is neither a secret nor the name of a file with a key.
pub fn may_be_shown(key: &str) -> bool {
    let words = ["password", "passphrase", "passwd", "secret", "auth", "credential"];
    let names_a_key = key.contains('.') && key.contains("key");
    !names_a_key && !words.iter().any(|word| key.contains(word))
}

const fn key(name: &'static str, class: Class, why: &'static str, instead: &'static str) -> Key {
    Key { name, class, why, instead, rest: |so_far, _| so_far }
}

impl Key {
    const fn rest(self, rest: Rest) -> Self {
        Self { rest, ..self }
    }

    /// Returns what to do instead. `cluster` is its name and namespace, as in the arguments of gatera's commands.
    pub fn way_out(&self, cluster: &str) -> WayOut {
        (self.rest)(say(self.instead), cluster)
    }
}

fn status(cluster: &str) -> CommandLine {
    CommandLine::new(format!("gatera status {cluster}"))
}

fn full_stop(so_far: WayOut, cluster: &str) -> WayOut {
    let so_far =
        so_far.run(CommandLine::new(format!("gatera stop {cluster}"))).say(", then the change, then ");
    so_far.run(CommandLine::new(format!("gatera start {cluster}")))
}

const REMOVE_IT: &str = "remove it";
const SERVER_FINDS_IT: &str = "remove it, because the server finds it by itself";
const PER_POD: Rest = |so_far, _| so_far.or("set it per pod, as an argument with $(POD_NAME) or $(POD_IP)");
const TLS_DIFFERS: &str =
    "a member that speaks TLS and one that does not cannot connect: the first that restarts is alone";
const FIRST_ALLOW_BOTH: &str =
    "first let every member run with TLS and socket.dynamic=yes, which connects to both kinds (";
const BY_STATUS: Rest = |so_far, cluster| {
    so_far
        .run(status(cluster))
        .say(" shows the progress); then, in a second rollout, remove socket.dynamic, and TLS too if you want none")
};
const OR_MOVE_IT: Rest =
    |so_far, _| so_far.or("to move it, first apply it in its new place, then remove it here");
const ENCRYPTED: &str = "pages that are encrypted are read only by a server that has the plugin, with their keys: without it a member does not start, or starts without those tables";
const DECRYPT: &str = "leave it in place until SET GLOBAL innodb_encrypt_tables = OFF has decrypted all: no row of information_schema.innodb_tablespaces_encryption has a min_key_version other than 0";
const REVERT_OR_RELOAD: &str =
    "revert the change; another value needs a new cluster, into which you load a dump";
const WRONG_FORMAT: &str = "it is written into the data files: with another value a member does not start, or starts without its data";
const DIFFERENT: &str =
    "members restart with a changed file one by one, and differ until the last has restarted";
const FILTERED: &str = "rows that are filtered out of replication are missing on the other members: they differ, until a member leaves the cluster because of it";
const ONE_ADDRESS: &str =
    "every member that reads it claims the same name or address, and state transfers go to the wrong one";
const ALONE: &str = "the member runs as a separate server: it is Ready, but its writes reach no other member";
const NO_TRANSFER: &str = "other members cannot reach it, so no state transfer ever arrives";
const ALL_AT_ONCE: &str = "it must be the same on all members: restart them one after the other soon";

/// All rows, sorted. One row, one line.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("aria_log_dir_path", Format(&[]), WRONG_FORMAT, REVERT_OR_RELOAD),
    key("base_host", Node, ONE_ADDRESS, SERVER_FINDS_IT).rest(PER_POD),
    key("bind_address", Deny(Local), NO_TRANSFER, "write bind_address = 0.0.0.0"),
    key("binlog_do_db", Deny(Any), FILTERED, REMOVE_IT),
    key("binlog_format", Deny(Is(&["STATEMENT", "MIXED", "0", "1"])), "Galera replicates rows: with another format the server does not start", "write binlog_format = ROW"),
    key("binlog_format", Kept(&["MIXED"]), "without it a server writes MIXED, and Galera does not start with that", "leave binlog_format = ROW in place"),
    key("binlog_ignore_db", Deny(Any), FILTERED, REMOVE_IT),
    key("character_set_server", Cluster { default: &[], fatal: false }, "tables that are created later get it; those that exist keep theirs", ALL_AT_ONCE),
    key("datadir", Format(&["/var/lib/mysql", "/var/lib/mysql/"]), "a member that starts in another folder finds no database there and takes a full copy from the others", "revert the change"),
    key("default_storage_engine", Deny(Not(&["InnoDB"])), "only InnoDB tables are replicated: rows of all others stay on one member", "write default_storage_engine = InnoDB"),
    key("enforce_storage_engine", Deny(Not(&["InnoDB"])), "only InnoDB tables are replicated: rows of all others stay on one member", "write enforce_storage_engine = InnoDB"),
    key("evs.inactive_timeout", Cluster { default: &["PT15S"], fatal: false }, DIFFERENT, ALL_AT_ONCE),
    key("evs.suspect_timeout", Cluster { default: &["PT5S"], fatal: false }, DIFFERENT, ALL_AT_ONCE),
    key("file_key_management_filename", Format(&[]), "a member without the keys that its pages were encrypted with cannot read them", "keep the file, and only ever add keys to it"),
    key("file_key_management_filename", Kept(&[""]), ENCRYPTED, DECRYPT),
    key("gcache.dir", Cluster { default: &[], fatal: false }, "a member that cannot find its write-set cache needs a full copy at its next start", "change it only while a full state transfer to every member is affordable"),
    key("gcache.name", Cluster { default: &["galera.cache"], fatal: false }, "a member that cannot find its write-set cache needs a full copy at its next start", "change it only while a full state transfer to every member is affordable"),
    key("gcs.max_packet_size", Cluster { default: &["64500"], fatal: false }, DIFFERENT, ALL_AT_ONCE),
    key("gcs.vote_policy", Cluster { default: &["0"], fatal: true }, "members that count votes differently expel each other", "revert the change; it is chosen before the cluster starts"),
    key("gmcast.isolate", Deny(Not(&["0", "false"])), "it cuts the member off at every start", REMOVE_IT),
    key("gmcast.listen_addr", Warn(Local), "the others cannot reach a member that listens only on localhost: if all do so, no two members form a cluster", "remove it, or write gmcast.listen_addr=tcp://0.0.0.0:4567"),
    key("gmcast.mcast_addr", Cluster { default: &[""], fatal: true }, "a member with multicast cannot reach one without", "revert the change").rest(|so_far, cluster| full_stop(so_far.or("it needs a full stop: "), cluster)),
    key("innodb_autoinc_lock_mode", Deny(Is(&["0", "1"])), "Galera needs interleaved numbers: with another mode members deadlock, and parallel appliers do not start", "write innodb_autoinc_lock_mode = 2"),
    key("innodb_autoinc_lock_mode", Kept(&["1"]), "without it the server uses 1, with which members deadlock, and parallel appliers do not start", "leave innodb_autoinc_lock_mode = 2 in place"),
    key("innodb_checksum_algorithm", Cluster { default: &[], fatal: false }, "with a strict value the server refuses pages that it wrote before", "write crc32 or full_crc32"),
    key("innodb_data_file_path", Format(&["ibdata1:12M:autoextend"]), WRONG_FORMAT, REVERT_OR_RELOAD),
    key("innodb_data_home_dir", Format(&[""]), WRONG_FORMAT, REVERT_OR_RELOAD),
    key("innodb_doublewrite", Deny(Off), "after a crash a half-written page makes the member unusable", "write innodb_doublewrite = ON"),
    key("innodb_flush_log_at_trx_commit", Warn(Is(&["0", "2"])), "a commit reaches the disk up to a second later: if all members lose power together it is lost", "write innodb_flush_log_at_trx_commit = 1, unless that loss is acceptable"),
    key("innodb_force_recovery", Deny(Not(&["0"])), "a member that may not write cannot apply what the others send", REMOVE_IT),
    key("innodb_log_group_home_dir", Format(&["./"]), WRONG_FORMAT, REVERT_OR_RELOAD),
    key("innodb_page_size", Format(&["16K"]), WRONG_FORMAT, REVERT_OR_RELOAD),
    key("innodb_read_only", Deny(On), "a member that may not write cannot apply what the others send", REMOVE_IT),
    key("innodb_undo_directory", Format(&["./"]), WRONG_FORMAT, REVERT_OR_RELOAD),
    key("innodb_undo_tablespaces", Cluster { default: &[], fatal: false }, "before MariaDB 11 a member does not start if the number differs from the one that its data was created with", "revert the change, unless the image is MariaDB 11 or later"),
    key("ist.recv_addr", Node, ONE_ADDRESS, SERVER_FINDS_IT).rest(PER_POD),
    key("ist.recv_bind", Deny(Local), NO_TRANSFER, REMOVE_IT),
    key("locked_in_memory", Deny(On), "a server with wsrep_on does not start with locked memory", REMOVE_IT),
    key("log_bin", Cluster { default: &[], fatal: false }, DIFFERENT, ALL_AT_ONCE),
    key("log_output", Warn(Among(&["TABLE"])), "log tables are not InnoDB and differ on every member", "write log_output = FILE"),
    key("log_slave_updates", Cluster { default: &["OFF"], fatal: false }, DIFFERENT, ALL_AT_ONCE),
    key("lower_case_table_names", Format(&["0"]), "the server no longer finds tables that were created with another value", REVERT_OR_RELOAD),
    key("max_allowed_packet", Cluster { default: &["16M"], fatal: false }, "a member with a lower limit than the others cannot apply a large write, and leaves the cluster", ALL_AT_ONCE),
    key("memlock", Deny(On), "a server with wsrep_on does not start with locked memory", REMOVE_IT),
    key("pc.bootstrap", Deny(On), "the member makes itself the primary component, no matter which other members exist: two clusters", REMOVE_IT),
    key("pc.ignore_quorum", Deny(On), "both halves of a split network continue to write: two clusters", REMOVE_IT),
    key("pc.ignore_sb", Deny(On), "both halves of a split network continue to write: two clusters", REMOVE_IT),
    key("pc.recovery", Warn(Off), "after a power failure the members do not form the cluster by themselves", "remove it, or you must bootstrap after every power failure"),
    key("pc.wait_prim", Warn(Off), "a member starts without its cluster and refuses every query", "remove it, or a member counts as started before it has found its cluster"),
    key("pc.weight", Deny(Is(&["0"])), "if every member has weight 0, there is no majority", REMOVE_IT),
    key("plugin_load_add", Kept(&[""]), ENCRYPTED, DECRYPT),
    key("port", Deny(NoPort), "the server does not start if this is not a number, and uses another port if the number is too large", "write a number up to 65535, such as port = 3306"),
    key("port", Warn(Is(&["4444", "4567", "4568"])), "Galera listens on this port, unless Galera's own options move it: the server does not start, or no transfer reaches it", "write another port, such as port = 3306"),
    key("read_only", Warn(On), "the member refuses writes of its clients", "remove it; to refuse writes for a while, use SET GLOBAL read_only = ON"),
    key("repl.proto_max", Cluster { default: &[], fatal: false }, DIFFERENT, "members must understand each other: change it only as the upgrade notes of Galera say"),
    key("replicate_do_db", Warn(Any), FILTERED, REMOVE_IT),
    key("replicate_do_table", Warn(Any), FILTERED, REMOVE_IT),
    key("replicate_ignore_db", Warn(Any), FILTERED, REMOVE_IT),
    key("replicate_ignore_table", Warn(Any), FILTERED, REMOVE_IT),
    key("replicate_wild_do_table", Warn(Any), FILTERED, REMOVE_IT),
    key("replicate_wild_ignore_table", Warn(Any), FILTERED, REMOVE_IT),
    key("report_host", Node, ONE_ADDRESS, SERVER_FINDS_IT).rest(PER_POD),
    key("skip_grant_tables", Warn(On), "every client that reaches its port is root, without a password", "remove it").rest(|so_far, _| so_far.or("to reset a lost root password, set it for a few minutes on one member that no Service leads to")),
    key("skip_networking", Deny(On), NO_TRANSFER, REMOVE_IT),
    key("socket.dynamic", Cluster { default: &["NO"], fatal: true }, "without it a member that speaks TLS and one that does not cannot connect, and not all members have the same setting yet", "keep it until every member has restarted with the same socket.ssl: ").rest(|so_far, cluster| so_far.run(status(cluster)).say(" shows the progress")),
    key("socket.ssl", Cluster { default: &[""], fatal: true }, TLS_DIFFERS, FIRST_ALLOW_BOTH).rest(BY_STATUS),
    key("socket.ssl_cert", Cluster { default: &[""], fatal: true }, TLS_DIFFERS, FIRST_ALLOW_BOTH).rest(BY_STATUS),
    key("sql_mode", Cluster { default: &[], fatal: false }, DIFFERENT, ALL_AT_ONCE),
    key("wsrep_certify_nonpk", Cluster { default: &["ON"], fatal: false }, "members that differ in it accept different writes", ALL_AT_ONCE),
    key("wsrep_cluster_name", Cluster { default: &["my_wsrep_cluster"], fatal: true }, "a member only joins members of the same cluster name: the first that restarts is alone", "keep the name").rest(|so_far, cluster| full_stop(so_far.or("to change it: "), cluster)),
    key("wsrep_data_home_dir", Format(&[]), "the member's position in the cluster is kept there; without it a full copy follows", "revert the change"),
    key("wsrep_desync", Deny(On), "the member does not keep up with the others; if all members do so, writes stop", REMOVE_IT),
    key("wsrep_dirty_reads", Warn(On), "a member that has lost the others continues to answer with old data", "set it per session instead"),
    key("wsrep_forced_binlog_format", Deny(Is(&["STATEMENT", "MIXED", "0", "1"])), "Galera replicates rows: with another format members differ", REMOVE_IT),
    key("wsrep_gtid_domain_id", Cluster { default: &["0"], fatal: true }, "members with different domains give the same transaction different global ids", "revert the change; it is chosen before the cluster starts"),
    key("wsrep_gtid_mode", Cluster { default: &["OFF"], fatal: false }, DIFFERENT, ALL_AT_ONCE),
    key("wsrep_max_ws_rows", Cluster { default: &["0"], fatal: false }, DIFFERENT, ALL_AT_ONCE),
    key("wsrep_max_ws_size", Cluster { default: &["2147483647"], fatal: false }, "a member with a lower limit than the others cannot apply a large write, and leaves the cluster", ALL_AT_ONCE),
    key("wsrep_mode", Warn(Among(&["REPLICATE_MYISAM", "REPLICATE_ARIA"])), "replicating MyISAM and Aria is experimental: nothing rolls back, and members can differ", "remove REPLICATE_MYISAM and REPLICATE_ARIA from it; ALTER TABLE … ENGINE=InnoDB makes such tables replicate"),
    key("wsrep_node_address", Node, ONE_ADDRESS, SERVER_FINDS_IT).rest(PER_POD),
    key("wsrep_node_incoming_address", Node, ONE_ADDRESS, SERVER_FINDS_IT).rest(PER_POD),
    key("wsrep_node_name", Node, "members with the same name cannot be distinguished, and a donor is chosen by name", SERVER_FINDS_IT).rest(PER_POD),
    key("wsrep_notify_cmd", Warn(Any), "the member waits while the command runs", "make sure that the command ends within a second"),
    key("wsrep_on", Deny(Off), ALONE, "write wsrep_on = ON"),
    key("wsrep_on", Kept(&["OFF"]), ALONE, "leave wsrep_on = ON in place").rest(OR_MOVE_IT),
    key("wsrep_osu_method", Deny(Is(&["RSU", "1"])), "a change of a table then happens on one member alone, and the tables differ", "write wsrep_OSU_method = TOI; RSU is for one session at a time"),
    key("wsrep_provider", Deny(Is(&["none", ""])), ALONE, "write the path of Galera's library: /usr/lib/galera/libgalera_smm.so in the official image"),
    key("wsrep_provider", Kept(&["none", ""]), ALONE, "leave it in place").rest(OR_MOVE_IT),
    key("wsrep_reject_queries", Deny(Not(&["NONE", "0"])), "the member refuses its clients after every start", REMOVE_IT),
    key("wsrep_replicate_myisam", Warn(On), "replicating MyISAM is experimental: nothing rolls back, and members can differ", "remove it; ALTER TABLE … ENGINE=InnoDB makes such tables replicate"),
    key("wsrep_slave_fk_checks", Deny(Off), "rows that break a foreign key get in, on one member or on all", REMOVE_IT),
    key("wsrep_sst_auth", Cluster { default: &[], fatal: false }, "the donor logs in with its own value, so until all members have restarted a state transfer may fail", "before the first member restarts, the user must exist with this password on every donor"),
    key("wsrep_sst_donor", Warn(Closed), "if none of the named donors is available, the joiner does not start", "end the list with a comma, which allows any other donor too"),
    key("wsrep_sst_method", Cluster { default: &["rsync"], fatal: false }, "the donor runs the method that the joiner asks for: its image must have the program, and its user the rights", "MariaDB has mariabackup, rsync and mysqldump: restart one member first, and watch its transfer"),
    key("wsrep_sst_method", Warn(Not(&["backup", "clone", "mariabackup", "mysqldump", "rsync", "rsync_wan", "skip", "xtrabackup", "xtrabackup-v2"])), "no server includes a program for it (wsrep_sst_METHOD): a member that needs a full copy never starts", "write mariabackup, rsync or mysqldump, which MariaDB has in every series"),
    key("wsrep_sst_receive_address", Deny(Local), NO_TRANSFER, REMOVE_IT),
    key("wsrep_sst_receive_address", Node, ONE_ADDRESS, SERVER_FINDS_IT).rest(PER_POD),
    key("wsrep_start_position", Warn(Not(&["", "00000000-0000-0000-0000-000000000000:-1"])), "a server uses it at every start, even if its data ends elsewhere: it joins with missing rows, and nothing shows that", "remove it; gatera's step script gives each member its own position at each start"),
    key("wsrep_sync_wait", Warn(Not(&["0"])), "every statement waits for the other members, probes included, and hangs where there is no majority", "set it per session instead"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_in_one_spelling() {
        assert!(KEYS.windows(2).all(|pair| pair[0].name <= pair[1].name), "sort it");
        for row in KEYS {
            assert_eq!(super::super::one_spelling(row.name), row.name);
            assert!(is_judged(row.name), "{}", row.name);
            assert!(
                !row.why.is_empty() && !row.instead.is_empty() && !row.why.ends_with('.'),
                "{}",
                row.name
            );
        }
        assert_eq!(
            (rows("wsrep_sst_receive_address").len(), rows("pc.weight").len(), rows("port").len()),
            (2, 1, 2)
        );
        assert!(rows("").is_empty() && rows("zzz").is_empty());
    }

    #[test]
    fn bad_values_are_recognised() {
        for (key, value, bad) in [
            ("binlog_format", Some("statement"), true),
            ("binlog_format", Some("row"), false),
            ("wsrep_on", Some("0"), true),
            ("wsrep_on", None, false),
            ("skip_networking", None, true),
            ("skip_networking", Some("OFF"), false),
            ("wsrep_mode", Some("STRICT_REPLICATION,REPLICATE_ARIA"), true),
            ("bind_address", Some("127.0.0.1"), true),
            ("bind_address", Some("0.0.0.0"), false),
            ("wsrep_sst_donor", Some("a,b,"), false),
            ("wsrep_sst_donor", Some("a"), true),
            ("innodb_force_recovery", Some("0"), false),
            ("innodb_force_recovery", Some("3"), true),
            ("pc.ignore_sb", Some("yes"), true),
        ] {
            let (Class::Deny(values) | Class::Warn(values)) = &rows(key)[0].class else { panic!("{key}") };
            assert_eq!(values.is(value), bad, "{key} {value:?}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for key in [
            "wsrep_sst_auth",
            "file_key_management_filekey_password",
            "socket.ssl_key",
            "socket.ssl_password_file",
        ] {
            assert!(!may_be_shown(key), "{key}");
        }
        assert!(
            may_be_shown("binlog_format") && may_be_shown("key_buffer_size") && may_be_shown("pc.ignore_sb")
        );
    }
}
