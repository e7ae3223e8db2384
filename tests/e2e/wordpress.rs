//! WordPress by charts/wordpress on a guarded Galera cluster: set up through its own page, and what was written is still served after a
//! member is killed, after its own pod restarts, and after an upgrade. Part of `make drills`, which builds its image.

use std::env;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use crate::galera::{Galera, PATIENCE, patiently};
use crate::guard::{chart, guarded};
use crate::install::{formed, helm_test};
use crate::lab::User;
use crate::power;

const TITLE: &str = "Rows that stay";

/// What its Service answers; with fields, to whoever sends a form.
fn page(galera: &Galera<'_>, path: &str, fields: Option<&str>) -> String {
    let service = galera.lab.get(&galera.namespace, "service/wordpress");
    let address = service["spec"]["clusterIP"].as_str().expect("it has an address").to_owned();
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((&*address, 80))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = format!("HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n");
        match fields {
            None => write!(stream, "GET {path} {head}\r\n")?,
            Some(fields) => {
                let kind = "application/x-www-form-urlencoded";
                let length = fields.len();
                write!(
                    stream,
                    "POST {path} {head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{fields}"
                )?;
            }
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    ask().unwrap_or_else(|error| format!("no answer: {error}"))
}

fn release(galera: &Galera<'_>, verb: &str, more: &[&str]) {
    let values =
        format!("--set=database.galera={},image.tag=lab,initImage.tag=1.36,volumeSize=1Gi", galera.name);
    let base = [verb, "blog", &chart("wordpress"), "--namespace", &galera.namespace, &values];
    galera.lab.helm(User::Admin, &[&base[..], more].concat()).succeeded();
    galera.kubectl(&["rollout", "status", "deployment/wordpress", "--timeout=80s"]).succeeded();
}

fn is_served(galera: &Galera<'_>) {
    patiently("the front page", || {
        let page = page(galera, "/", None);
        if page.contains(&format!("<title>{TITLE}</title>")) { Ok(()) } else { Err(page) }
    });
}

#[test]
fn what_was_written_outlives_a_member_a_restart_and_an_upgrade() {
    let galera = formed(guarded(), "pages");
    let image = env::var_os("GATERA_WORDPRESS_IMAGE").map(PathBuf::from);
    galera.lab.import_image(&image.expect("GATERA_WORDPRESS_IMAGE names its image: use `make drills`"));
    release(&galera, "install", &[]);
    helm_test(galera.lab, "blog", &galera.namespace);
    let fields = "weblog_title=Rows+that+stay&user_name=admin&admin_password=for-a-test-9&admin_password2=for-a-test-9&pw_weak=1\
                  &admin_email=a%40example.com&language=";
    let done = page(&galera, "/wp-admin/install.php?step=2", Some(fields));
    assert!(done.contains("<h1>Success!</h1>"), "{done}");
    is_served(&galera);
    let published =
        "SELECT post_title FROM wordpress.wp_posts WHERE post_type = 'post' AND post_status = 'publish'";
    assert_eq!(galera.ask(&galera.member(2), published), "Hello world!");
    let grants = galera.ask(&galera.member(0), "SHOW GRANTS FOR wordpress@'%'");
    assert!(
        grants.contains("ON `wordpress`.* TO") && !grants.contains("GRANT ALL PRIVILEGES ON *.*"),
        "{grants}"
    );

    assert!(power::killed_if_it_runs(&galera.member(1)));
    is_served(&galera);
    galera.until_synced(3, 3);
    galera.kubectl(&["delete", "pod", "--selector=tier=frontend"]).succeeded();
    galera.kubectl(&["rollout", "status", "deployment/wordpress", "--timeout=80s"]).succeeded();
    is_served(&galera);
    release(&galera, "upgrade", &["--set=service.type=ClusterIP"]);
    is_served(&galera);
    assert_eq!(galera.ask(&galera.member(1), published), "Hello world!");
}
