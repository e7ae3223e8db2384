//! The W3C's WebDriver protocol, as much of it as the drills use: a session of a browser, elements, and what is done to them. JSON over
//! HTTP, a connection for each command.
//!
//! Must not know: where the browser runs, how long one waits, what pages there are.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

/// How long one command may take: longer than a page may load, so it is the driver who says what went wrong.
const COMMAND: Duration = Duration::from_secs(120);
const PAGE_LOAD: Duration = Duration::from_secs(60);

/// What the protocol calls the one field of a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A key that is not a letter.
pub const ENTER: &str = "\u{e007}";

pub struct Session {
    driver: String,
    path: String,
}

impl Session {
    /// A new browser that remembers nothing, at the driver that listens on `driver`.
    pub fn start(driver: &str) -> Result<Self, String> {
        // Its own sandbox needs rights that a pod does not have, and the memory that pods share is too small. It has nothing to ask of
        // the world outside, where nothing answers.
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--window-size=1280,1024",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {
                "binary": "/usr/bin/chromium",
                "args": arguments,
                // No connections ahead of what is asked for. A server that waits for the first byte (Apache does) never took such a one,
                // so it does not close it when its pod goes: the next page would wait, for minutes, for somebody who is gone.
                "prefs": { "net.network_prediction_options": 2 },
            },
            "timeouts": { "pageLoad": PAGE_LOAD.as_millis(), "script": PAGE_LOAD.as_millis(), "implicit": 0 },
            // A question of the page is a mistake of the drill: the command that meets it fails, and says what was asked.
            "unhandledPromptBehavior": "dismiss and notify",
        }}});
        let answer = command(driver, "POST", "/session", Some(&wanted))?;
        let id = answer["sessionId"].as_str().ok_or_else(|| format!("no session: {answer}"))?;
        Ok(Self { driver: driver.to_owned(), path: format!("/session/{id}") })
    }

    fn get(&self, path: &str) -> Result<String, String> {
        let answer = command(&self.driver, "GET", &format!("{}/{path}", self.path), None)?;
        Ok(answer.as_str().map_or_else(|| answer.to_string(), str::to_owned))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        command(&self.driver, "POST", &format!("{}/{path}", self.path), Some(body))
    }

    /// Returns when the page and what belongs to it are loaded.
    pub fn open(&self, url: &str) -> Result<(), String> {
        self.post("url", &json!({ "url": url })).map(drop)
    }

    pub fn url(&self) -> Result<String, String> {
        self.get("url")
    }

    pub fn title(&self) -> Result<String, String> {
        self.get("title")
    }

    /// What a person sees of the first element that this selects.
    pub fn text(&self, css: &str) -> Result<String, String> {
        self.get(&self.of(css, "text")?)
    }

    /// What stands in a field now; of the page, not of its source.
    pub fn value(&self, css: &str) -> Result<String, String> {
        self.get(&self.of(css, "property/value")?)
    }

    /// Fails while something is in front of it, or it cannot be seen.
    pub fn press(&self, css: &str) -> Result<(), String> {
        self.post(&self.of(css, "click")?, &json!({})).map(drop)
    }

    /// Empties a field.
    pub fn clear(&self, css: &str) -> Result<(), String> {
        self.post(&self.of(css, "clear")?, &json!({})).map(drop)
    }

    /// Key by key, as a person does.
    pub fn keys(&self, css: &str, text: &str) -> Result<(), String> {
        self.post(&self.of(css, "value")?, &json!({ "text": text })).map(drop)
    }

    /// What is said from now on is said of what is in this frame.
    pub fn enter(&self, css: &str) -> Result<(), String> {
        self.post("frame", &json!({ "id": { ELEMENT: self.element(css)? } })).map(drop)
    }

    /// And now of the whole page again.
    pub fn leave(&self) -> Result<(), String> {
        self.post("frame", &json!({ "id": null })).map(drop)
    }

    /// A PNG of what the window shows.
    pub fn screenshot(&self) -> Result<Vec<u8>, String> {
        BASE64_STANDARD.decode(self.get("screenshot")?).map_err(|error| format!("a screenshot: {error}"))
    }

    fn element(&self, css: &str) -> Result<String, String> {
        let found = self.post("element", &json!({ "using": "css selector", "value": css }))?;
        let id = found[ELEMENT].as_str().ok_or_else(|| format!("{css}: no element in {found}"))?;
        Ok(id.to_owned())
    }

    fn of(&self, css: &str, what: &str) -> Result<String, String> {
        Ok(format!("element/{}/{what}", self.element(css)?))
    }
}

impl Drop for Session {
    /// The browser ends with its session. A driver that is gone took it along.
    fn drop(&mut self) {
        let _ = command(&self.driver, "DELETE", &self.path, None);
    }
}

/// Whether the driver takes sessions.
pub fn is_up(driver: &str) -> Result<(), String> {
    let status = command(driver, "GET", "/status", None)?;
    if status["ready"] == true { Ok(()) } else { Err(status.to_string()) }
}

/// The field `value` of the answer, or the error that is in it: the first line of what the driver says, which begins with its name.
fn command(driver: &str, verb: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let answer = exchange(driver, verb, path, body).map_err(|error| format!("{verb} {path}: {error}"))?;
    let mut answer: Value =
        serde_json::from_slice(&answer).map_err(|error| format!("{verb} {path}: {error}"))?;
    let value = answer["value"].take();
    match value["error"].as_str() {
        None => Ok(value),
        Some(error) => {
            let message = value["message"].as_str().and_then(|it| it.lines().next()).unwrap_or_default();
            Err(if message.starts_with(error) { message.to_owned() } else { format!("{error}: {message}") })
        }
    }
}

fn exchange(driver: &str, verb: &str, path: &str, body: Option<&Value>) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(driver)?;
    stream.set_read_timeout(Some(COMMAND))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{verb} {path} HTTP/1.1\r\nHost: {driver}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    // Up to the empty line. The status repeats what the body says.
    while {
        line.clear();
        reader.read_line(&mut line)? > 2
    } {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer)?;
    Ok(answer)
}
