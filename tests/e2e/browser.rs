//! A person at a browser: opens pages, waits until something can be seen, fills in and presses, and keeps pictures. Chromium without a
//! screen, in a pod of the lab, so that names resolve and Services lead where they lead for everybody else there.
//!
//! Pictures are in target/screenshots, a folder for each drill. One that failed has as its last what was to be seen then.
//!
//! Must not know: which pages there are. The protocol is in `webdriver.rs`.

use std::cell::Cell;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;

use serde_json::json;

use crate::galera::patiently;
use crate::lab::User;
use crate::nodes::lab;
use crate::webdriver::{self, Session};

/// How much of a page stands in an error.
const GLANCE: usize = 1500;

pub struct Browser {
    session: Session,
    folder: PathBuf,
    pictures: Cell<usize>,
}

impl Browser {
    /// A browser that nobody has used; its pictures take the place of those of the last time.
    pub fn start(drill: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots").join(drill);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        let session = Session::start(&DRIVER).unwrap_or_else(|error| panic!("no browser: {error}"));
        Self { session, folder, pictures: Cell::new(0) }
    }

    /// What there is to see: for an error, so it never fails.
    pub fn glance(&self) -> String {
        let told = |what: Result<String, String>| what.unwrap_or_else(|error| format!("({error})"));
        let text: String = told(self.session.text("body")).chars().take(GLANCE).collect();
        format!("{} \"{}\"\n{text}", told(self.session.url()), told(self.session.title()))
    }

    fn until<T>(&self, what: &str, mut probe: impl FnMut(&Session) -> Result<T, String>) -> T {
        patiently(what, || probe(&self.session).map_err(|error| format!("{error}\non {}", self.glance())))
    }

    /// Loads a page until it is the right one: what is behind it may be on its way.
    pub fn open_until(&self, url: &str, right: impl Fn(&Session) -> Result<(), String>) {
        self.until(url, |session| {
            let found = session.open(url).and_then(|()| right(session));
            found.inspect_err(|error| println!("not yet: {error}\non {}", self.glance()))
        });
    }

    /// Waits until something is there.
    pub fn see(&self, css: &str) -> String {
        self.until(css, |session| session.text(css))
    }

    /// Waits until something is there, be it in this frame of the page, and stays where it is.
    pub fn enter(&self, frame: &str, css: &str) {
        self.until(&format!("{css}, in {frame} or not"), |session| {
            session.leave()?;
            if session.text(css).is_err() {
                session.enter(frame)?;
                session.text(css)?;
            }
            Ok(())
        });
    }

    /// Goes back to the whole page.
    pub fn leave(&self) {
        self.session.leave().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until this is to be read in it.
    pub fn read(&self, css: &str, text: &str) {
        self.until(&format!("\"{text}\" in {css}"), |session| contains(session, css, text));
    }

    /// Types into a field what is to stand there afterwards.
    pub fn fill(&self, css: &str, text: &str) {
        self.until(&format!("{css} to be filled in"), |session| {
            session.clear(css)?;
            session.keys(css, text)?;
            let now = session.value(css)?;
            if now == text { Ok(()) } else { Err(format!("{css} holds \"{now}\"")) }
        });
    }

    /// Types to what has no value to look at. Only what comes after it tells.
    pub fn write(&self, css: &str, text: &str) {
        self.see(css);
        self.session.keys(css, text).unwrap_or_else(|error| panic!("{css}: {error}\non {}", self.glance()));
    }

    /// Where it is now.
    pub fn url(&self) -> String {
        self.session.url().unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn press(&self, css: &str) {
        self.until(&format!("{css} to be pressed"), |session| session.press(css));
    }

    pub fn picture(&self, what: &str) {
        self.keep(what).unwrap_or_else(|error| panic!("no picture {what}: {error}"));
    }

    fn keep(&self, what: &str) -> Result<(), String> {
        let number = self.pictures.get() + 1;
        let file = self.folder.join(format!("{number:02}-{what}.png"));
        fs::write(file, self.session.screenshot()?).map_err(|error| error.to_string())?;
        self.pictures.set(number);
        Ok(())
    }
}

/// Whether this is to be read in the first element that `css` selects.
pub fn contains(session: &Session, css: &str, text: &str) -> Result<(), String> {
    let read = session.text(css)?;
    if read.contains(text) { Ok(()) } else { Err(format!("{css} reads \"{read}\"")) }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if thread::panicking() {
            if let Err(error) = self.keep("as-it-failed") {
                eprintln!("no picture of it: {error}");
            }
            eprintln!("the browser shows {}", self.glance());
        }
        println!("{} pictures in {}", self.pictures.get(), self.folder.display());
    }
}

/// Its driver's address: a pod on one of the shared nodes, which the browsers of all drills live in. No other node needs its image.
static DRIVER: LazyLock<String> = LazyLock::new(|| {
    let lab = lab();
    let image = env::var_os("GATERA_BROWSER_IMAGE").map(PathBuf::from);
    lab.import_image_to(1, &image.expect("GATERA_BROWSER_IMAGE names its image: use `make drills`"));
    let namespace = lab.namespace("browser");
    lab.create(&json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "browser", "namespace": namespace },
        "spec": {
            "nodeName": "node-1",
            "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "browser",
                "image": "browser:lab",
                "imagePullPolicy": "Never",
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "ports": [{ "containerPort": 9515 }],
            }],
        },
    }));
    let wait = ["wait", "pod/browser", "--namespace", &namespace, "--for=condition=Ready", "--timeout=80s"];
    lab.kubectl(User::Admin, &wait).succeeded();
    let pod = lab.get(&namespace, "pod/browser");
    let driver = format!("{}:9515", pod["status"]["podIP"].as_str().expect("it runs"));
    patiently("the driver of the browser", || webdriver::is_up(&driver));
    driver
});
