//! The step in front of a real server, where one is installed: with any option file the position is printed, and an option that
//! the server does not accept is named.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::pod::{Outcome, for_each, program};

const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

#[test]
fn no_option_prevents_a_real_server_from_printing_its_position() {
    let installed = ["mariadbd", "mariadb-install-db", "my_print_defaults"].map(|name| program(name, false));
    let ([Some(mariadbd), Some(install), Some(_)], true) = (installed, Path::new(PROVIDER).exists()) else {
        return;
    };
    for_each(&["", "silent-startup", "log-error = ERRORS\nlog-warnings = 0"], |pod, options| {
        if pod.shell.ends_with("bash") {
            return; // a real server is slow, and two shells are enough
        }
        // As root the step asks for the position as the user mysql.
        let user = rustix::process::getuid().as_raw();
        pod.write("proc/self/status", format!("Uid:\t{user}\nCapEff:\t00000000a80425fb\n"));
        fs::set_permissions(pod.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let data = pod.path("data");
        fs::create_dir(&data).unwrap();
        let data = data.display();
        let errors = pod.path("data/errors").display().to_string();
        pod.write("my.cnf", format!("[mysqld]\n{}\n", options.replace("ERRORS", &errors)));
        let status = Command::new(&install)
            .args(["--no-defaults", &format!("--datadir={data}"), "--skip-test-db"])
            .env("TMPDIR", pod.path("data"))
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
        let args = format!(
            "{} --defaults-file={} --datadir={data} --pid-file={data}/pid --socket={data}/sock --skip-networking \
             --innodb-buffer-pool-size=8M --binlog-format=ROW --wsrep-on=ON --wsrep-provider={PROVIDER} \
             --wsrep-cluster-address=gcomm://127.0.0.1",
            mariadbd.display(),
            pod.path("my.cnf").display(),
        );
        pod.env("GATERA_ONLY_TELLS", "yes").env("PATH", std::env::var_os("PATH").unwrap());
        let step = pod.step(&args).output().unwrap();
        let outcome = Outcome::of(&step).exits(0);
        let reported = fs::read_to_string(pod.path("start")).unwrap();
        assert!(
            reported.contains("position unknown: InnoDB holds none"),
            "{options}: {reported} {outcome:#?}"
        );
        let bad = pod
            .env("GATERA_ONLY_TELLS", "")
            .step(&format!("{args} --max-conections=hunter2"))
            .output()
            .unwrap();
        let message = fs::read_to_string(pod.path("termination")).unwrap();
        let ended = message.ends_with("; the server ended: unknown variable max-conections\n");
        assert!(ended, "{message} {:#?}", Outcome::of(&bad));
    });
}
