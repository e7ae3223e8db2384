//! WordPress from charts/wordpress in a browser: it is set up through its own page, and a post from its editor is still served
//! after its database restarts or a member of its Galera cluster is killed, after its own pod restarts, and after an upgrade.
//! Part of `make drills`, which builds the images of WordPress and the browser.

use std::cell::RefCell;
use std::env;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread;
use std::time::Instant;

use crate::browser::{Browser, contains};
use crate::galera::series;
use crate::guard::{chart, guarded};
use crate::install::{formed, helm_test};
use crate::lab::{ControlPlane, Output, User};
use crate::power;
use crate::webdriver::ENTER;

const TITLE: &str = "Rows that stay";
const POST: &str = "Written on one, read on another";
/// Text beyond ASCII, and with characters that have a meaning in HTML.
const WORDS: &str = "Trois serveurs, une même ligne: ça reste & < 4 minutes.";
const USER: &str = "admin";
/// A password that is strong enough for the setup page to accept it without a confirmation.
const PASSWORD: &str = "Nine-rows.Of-three.Members-58";

struct Blog<'a> {
    lab: &'a ControlPlane,
    namespace: String,
    /// The value of charts/wordpress that names its database.
    database: String,
    browser: Browser,
    /// The address of the post.
    post: RefCell<String>,
}

impl<'a> Blog<'a> {
    /// Imports the image, installs the chart, and runs its test. `drill` names the folder of the pictures.
    fn installed(lab: &'a ControlPlane, namespace: &str, database: &str, drill: &str) -> Self {
        static IMAGE: LazyLock<()> = LazyLock::new(|| {
            let image = env::var_os("GATERA_WORDPRESS_IMAGE").map(PathBuf::from);
            guarded()
                .import_image(&image.expect("GATERA_WORDPRESS_IMAGE names its image: use `make drills`"));
        });
        LazyLock::force(&IMAGE);
        let browser = Browser::start(drill);
        let blog = Self {
            lab,
            namespace: namespace.to_owned(),
            database: database.to_owned(),
            browser,
            post: RefCell::default(),
        };
        blog.release("install", "");
        helm_test(lab, "blog", namespace);
        blog
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        self.lab.kubectl(User::Admin, &[&["--namespace", &*self.namespace], arguments].concat())
    }

    /// Installs or upgrades the release.
    fn release(&self, verb: &str, more: &str) {
        let values = format!(
            "--set={},database.image.tag={},database.volumeSize=1Gi,image.tag=lab,volumeSize=1Gi,{more}",
            self.database,
            series()
        );
        let arguments = [verb, "blog", &chart("wordpress"), "--namespace", &self.namespace, &values];
        self.lab.helm(User::Admin, &arguments).succeeded();
        self.until_rolled_out("wordpress");
    }

    fn until_rolled_out(&self, deployment: &str) {
        let deployment = format!("deployment/{deployment}");
        self.kubectl(&["rollout", "status", &deployment, "--timeout=80s"]).succeeded();
    }

    /// Deletes the pod of a tier. Returns when its successor is Ready.
    fn restart(&self, tier: &str, deployment: &str) {
        self.kubectl(&["delete", "pod", &format!("--selector=tier={tier}")]).succeeded();
        self.until_rolled_out(deployment);
    }

    /// Returns the address of a page, with the host name of the setup, to which WordPress redirects every request.
    fn url(&self, path: &str) -> String {
        format!("http://wordpress.{}.svc.cluster.local{path}", self.namespace)
    }

    /// Sets WordPress up through its own pages, up to the dashboard.
    fn set_up(&self) {
        let browser = &self.browser;
        browser.open_until(&self.url("/"), |page| contains(page, "h1", "Welcome"));
        // The page's script puts a password into this field and then moves the cursor there.
        browser.see("#pass1:focus");
        browser.fill("#weblog_title", TITLE);
        browser.fill("#user_login", USER);
        browser.fill("#pass1", PASSWORD);
        browser.fill("#admin_email", "admin@example.com");
        browser.picture("setup-page");
        browser.press("#submit:enabled");
        browser.read("h1", "Success!");
        browser.picture("set-up");
        browser.press("a[href*='wp-login.php']");
        // Shortly after the page has loaded, its script moves the cursor to this field.
        browser.see("#user_login:focus");
        browser.fill("#user_login", USER);
        browser.fill("#user_pass", PASSWORD);
        browser.press("#wp-submit");
        browser.read("h1", "Dashboard");
        browser.picture("dashboard");
    }

    /// Writes and publishes a post in the block editor, which shows its guide for new users first.
    fn write_post(&self) {
        const TITLE_FIELD: &str = ".editor-post-title__input";
        const PARAGRAPH: &str = "[data-type='core/paragraph']";
        let browser = &self.browser;
        browser.open_until(&self.url("/wp-admin/post-new.php"), |page| {
            contains(page, ".edit-post-welcome-guide", "Welcome to the ")
        });
        browser.press(".edit-post-welcome-guide .components-modal__header button");
        // A newer WordPress has a frame around the text.
        browser.enter("iframe[name='editor-canvas']", TITLE_FIELD);
        browser.write(TITLE_FIELD, &format!("{POST}{ENTER}"));
        browser.write(PARAGRAPH, WORDS);
        browser.read(TITLE_FIELD, POST);
        browser.read(PARAGRAPH, WORDS);
        browser.leave();
        browser.picture("editor");
        browser.press(".editor-post-publish-panel__toggle[aria-disabled='false']");
        browser.press(".editor-post-publish-button[aria-disabled='false']");
        browser.read(".post-publish-panel__postpublish-header", "is now live");
        browser.picture("published");
        browser.press(".post-publish-panel__postpublish-buttons a.is-primary");
        browser.read(".wp-block-post-content", WORDS);
        self.post.replace(browser.url());
    }

    /// Checks that the front page and the page of the post show it. The user is logged in, so no page comes from a cache.
    fn post_is_served(&self, when: &str) {
        let started = Instant::now();
        self.browser.open_until(&self.url("/"), |page| {
            contains(page, ".wp-block-site-title", TITLE)?;
            contains(page, "main", POST)
        });
        let served = started.elapsed();
        self.browser.picture(&format!("front-page-{when}"));
        self.browser.open_until(&self.post.borrow(), |page| {
            contains(page, "h1", POST)?;
            contains(page, ".wp-block-post-content", WORDS)
        });
        self.browser.picture(&format!("post-{when}"));
        println!(
            "{when}: served within {:.1} s, the post after {:.1} s",
            served.as_secs_f64(),
            started.elapsed().as_secs_f64()
        );
    }
}

/// Prints the pods, Events and last log lines of the namespace after a test has failed.
impl Drop for Blog<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        eprintln!("{}", self.kubectl(&["get", "pods,events", "--output=wide"]).stdout);
        let logs =
            ["logs", "--selector=app=blog", "--all-containers", "--timestamps", "--prefix", "--tail=100"];
        eprintln!("{}", self.kubectl(&logs).stdout);
    }
}

#[test]
fn a_post_in_its_own_database_survives_restarts_and_an_upgrade() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("blog", &[("gatera.dev/mode", "enforce")]);
    let blog = Blog::installed(lab, &namespace, "database.galera=", "wordpress-own-database");
    blog.set_up();
    blog.write_post();
    blog.post_is_served("at-first");

    blog.restart("mysql", "wordpress-mysql");
    blog.post_is_served("after-its-database-restarted");
    blog.restart("frontend", "wordpress");
    blog.post_is_served("after-its-pod-restarted");
    blog.release("upgrade", "service.type=ClusterIP,resources.requests.cpu=60m");
    blog.post_is_served("after-an-upgrade");
}

#[test]
fn a_post_on_a_galera_cluster_survives_a_killed_member_a_restart_and_an_upgrade() {
    let galera = formed(guarded(), "pages");
    let database = format!("database.galera={}", galera.name);
    let blog = Blog::installed(galera.lab, &galera.namespace, &database, "wordpress-galera");
    blog.set_up();
    blog.write_post();
    blog.post_is_served("at-first");
    let published = "SELECT post_title FROM wordpress.wp_posts WHERE post_type = 'post' AND post_status = 'publish' ORDER BY ID";
    let posts = format!("Hello world!\n{POST}");
    assert_eq!(galera.ask(&galera.member(2), published), posts, "posts on member 2");
    let grants = galera.ask(&galera.member(0), "SHOW GRANTS FOR wordpress@'%'");
    assert!(
        grants.contains("ON `wordpress`.* TO") && !grants.contains("GRANT ALL PRIVILEGES ON *.*"),
        "WordPress's user has other rights than those in its database: {grants}"
    );

    assert!(power::kill_if_running(&galera.member(1)), "no server of member 1 runs");
    blog.post_is_served("after-a-member-was-killed");
    galera.until_synced(3, 3);
    assert_eq!(galera.ask(&galera.member(1), published), posts, "posts on member 1");
    blog.restart("frontend", "wordpress");
    blog.post_is_served("after-its-pod-restarted");
    blog.release("upgrade", "service.type=ClusterIP,resources.requests.cpu=60m");
    blog.post_is_served("after-an-upgrade");
    assert_eq!(galera.ask(&galera.member(1), published), posts, "posts on member 1");
}
