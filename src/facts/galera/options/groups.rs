//! The groups of option files: which programs read each `[group]`.

use crate::galera::programs;

/// The programs that read a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    Server,
    /// Another program: a client, a backup, the state transfer's script.
    Others,
    /// No program; `[innodb]` only looks as if a program read it.
    NoProgram,
}

/// The groups in mariadbd's `load_default_groups`, besides those of its series.
const SERVER: [&str; 6] = ["mysqld", "server", "mariadb", "mariadbd", "client-server", "galera"];

/// Other groups of programs and scripts in MariaDB's packages, besides the clients.
const OTHER_PROGRAMS: [&str; 30] = [
    "aria_chk",
    "aria_pack",
    "embedded",
    "galera_recovery",
    "garbd",
    "isamchk",
    "manager",
    "mariabackup",
    "mariadb-backup",
    "mariadb-client",
    "mariadb-embedded",
    "mariadb-install-db",
    "mariadb-multi",
    "mariadb-test",
    "mariadb_safe",
    "mariadbd-multi",
    "mariadbd-safe",
    "myisamchk",
    "myisampack",
    "mysql.server",
    "mysql_install_db",
    "mysql_safe",
    "mysqld_multi",
    "mysqld_safe",
    "mysqlhotcopy",
    "mysqltest",
    "mytop",
    "odbc",
    "sst",
    "xtrabackup",
];

/// Returns which programs read this group. `mariadb-10.11` is read by the servers of that series, `client…` by clients.
pub fn readers(group: &str) -> Readers {
    let group = &*group.to_ascii_lowercase();
    let is_digit = |c: char| c.is_ascii_digit();
    let numbered = |prefix: &str| group.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(is_digit));
    match () {
        () if SERVER.contains(&group) => Readers::Server,
        () if ["mariadb-", "mysqld-", "mariadbd-"].iter().any(|prefix| numbered(prefix)) => Readers::Server,
        // A group such as `mysqld1` is for a server that mysqld_multi starts.
        () if programs::clients().chain(OTHER_PROGRAMS).any(|it| it == group)
            || group.starts_with("client")
            || numbered("mysqld") =>
        {
            Readers::Others
        }
        () => Readers::NoProgram,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_its_readers() {
        for group in [
            "mysqld",
            "MYSQLD",
            "server",
            "galera",
            "mariadb",
            "mariadb-10.11",
            "mysqld-5.5",
            "mariadbd-11",
            "client-server",
        ] {
            assert_eq!(readers(group), Readers::Server, "{group}");
        }
        for group in [
            "client",
            "client-mariadb",
            "mariadb-client",
            "mysqldump",
            "mysqld_safe",
            "mysqld2",
            "sst",
            "mariabackup",
        ] {
            assert_eq!(readers(group), Readers::Others, "{group}");
        }
        for group in ["innodb", "mysqd", "mariadb-server", "galera ", "", "é", "myysql"] {
            assert_eq!(readers(group), Readers::NoProgram, "{group}");
        }
    }
}
