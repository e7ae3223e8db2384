//! A browser as a person uses it: opens pages, waits until something is visible, fills in fields, presses buttons, and saves
//! pictures. It is a headless Chromium in a pod of the lab, so names resolve and Services are reached as from every pod.
//!
//! Pictures are in target/screenshots, a folder for each drill. The last picture of a failed drill shows the page at that time.
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

/// The number of characters of a page that an error shows.
const GLANCE: usize = 1500;

pub struct Browser {
    session: Session,
    folder: PathBuf,
    pictures: Cell<usize>,
}

impl Browser {
    /// Starts a fresh browser; its pictures replace those of the last run.
    pub fn start(drill: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots").join(drill);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        let session = Session::start(&DRIVER).unwrap_or_else(|error| panic!("no browser: {error}"));
        Self { session, folder, pictures: Cell::new(0) }
    }

    /// Describes the current page for an error message. Never fails.
    pub fn glance(&self) -> String {
        let reported = |what: Result<String, String>| what.unwrap_or_else(|error| format!("({error})"));
        let text: String = reported(self.session.text("body")).chars().take(GLANCE).collect();
        format!("{} \"{}\"\n{text}", reported(self.session.url()), reported(self.session.title()))
    }

    fn until<T>(&self, what: &str, mut probe: impl FnMut(&Session) -> Result<T, String>) -> T {
        patiently(what, || probe(&self.session).map_err(|error| format!("{error}\non {}", self.glance())))
    }

    /// Loads a page repeatedly until `right` accepts it, because the server behind it may not be ready yet.
    pub fn open_until(&self, url: &str, right: impl Fn(&Session) -> Result<(), String>) {
        self.until(&format!("{url} shows the expected page"), |session| {
            let found = session.open(url).and_then(|()| right(session));
            found.inspect_err(|error| println!("not yet: {error}\non {}", self.glance()))
        });
    }

    /// Waits until an element exists. Returns its text.
    pub fn see(&self, css: &str) -> String {
        self.until(&format!("{css} exists"), |session| session.text(css))
    }

    /// Waits until an element exists, in this frame or outside of it. Later calls look for elements in the same place.
    pub fn enter(&self, frame: &str, css: &str) {
        self.until(&format!("{css} exists, in {frame} or outside of it"), |session| {
            session.leave()?;
            if session.text(css).is_err() {
                session.enter(frame)?;
                session.text(css)?;
            }
            Ok(())
        });
    }

    /// Makes later calls look for elements in the whole page again.
    pub fn leave(&self) {
        self.session.leave().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until the element contains this text.
    pub fn read(&self, css: &str, text: &str) {
        self.until(&format!("{css} contains \"{text}\""), |session| contains(session, css, text));
    }

    /// Fills in a field until it holds exactly this text.
    pub fn fill(&self, css: &str, text: &str) {
        self.until(&format!("{css} is filled in"), |session| {
            session.clear(css)?;
            session.keys(css, text)?;
            let now = session.value(css)?;
            if now == text { Ok(()) } else { Err(format!("{css} holds \"{now}\"")) }
        });
    }

    /// Types into an element that has no value to check. The caller checks what the page shows afterwards.
    pub fn write(&self, css: &str, text: &str) {
        self.see(css);
        self.session.keys(css, text).unwrap_or_else(|error| panic!("{css}: {error}\non {}", self.glance()));
    }

    /// Returns the address of the current page.
    pub fn url(&self) -> String {
        self.session.url().unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn press(&self, css: &str) {
        self.until(&format!("{css} is pressed"), |session| session.press(css));
    }

    pub fn picture(&self, what: &str) {
        self.save_picture(what).unwrap_or_else(|error| panic!("no picture {what}: {error}"));
    }

    fn save_picture(&self, what: &str) -> Result<(), String> {
        let number = self.pictures.get() + 1;
        let file = self.folder.join(format!("{number:02}-{what}.png"));
        fs::write(file, self.session.screenshot()?).map_err(|error| error.to_string())?;
        self.pictures.set(number);
        Ok(())
    }
}

/// Returns an error unless the first element that `css` selects contains the text.
pub fn contains(session: &Session, css: &str, text: &str) -> Result<(), String> {
    let read = session.text(css)?;
    if read.contains(text) { Ok(()) } else { Err(format!("{css} reads \"{read}\"")) }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if thread::panicking() {
            if let Err(error) = self.save_picture("as-it-failed") {
                eprintln!("no picture of the failure: {error}");
            }
            eprintln!("the browser shows {}", self.glance());
        }
        println!("{} pictures in {}", self.pictures.get(), self.folder.display());
    }
}

/// The address of the driver. One pod runs the browsers of all drills, so only one node needs its image.
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
    let driver = format!("{}:9515", pod["status"]["podIP"].as_str().expect("the pod has an address"));
    patiently("the browser's driver accepts sessions", || webdriver::is_up(&driver));
    driver
});
