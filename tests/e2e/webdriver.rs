//! The part of the W3C's WebDriver protocol that the drills use: a browser session, its elements, and actions on them. JSON
//! over HTTP, one connection per command.
//!
//! Must not know: where the browser runs, how long tests wait, which pages there are.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

/// The time limit for one command. It is longer than the one for a page, so that the driver reports what went wrong.
const COMMAND_DEADLINE: Duration = Duration::from_secs(120);
const PAGE_LOAD: Duration = Duration::from_secs(60);

/// The protocol's name for the only field of a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The protocol's character for the Enter key.
pub const ENTER: &str = "\u{e007}";

pub struct Session {
    driver: String,
    path: String,
}

impl Session {
    /// Starts a new browser without stored data, at the driver that listens on `driver`.
    pub fn start(driver: &str) -> Result<Self, String> {
        // Chromium's own sandbox needs rights that a pod does not have, and the shared memory of pods is too small. No
        // background requests, because the lab has no internet.
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
                // No connections in advance. A server that waits for the first byte, as Apache does, never accepts such a
                // connection and does not close it when its pod ends: the next page would wait minutes for that pod.
                "prefs": { "net.network_prediction_options": 2 },
            },
            "timeouts": { "pageLoad": PAGE_LOAD.as_millis(), "script": PAGE_LOAD.as_millis(), "implicit": 0 },
            // Tests expect no dialogs: a command during which one opens fails with its text.
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

    /// Opens a page. Returns when the page is loaded, with its images and scripts.
    pub fn open(&self, url: &str) -> Result<(), String> {
        self.post("url", &json!({ "url": url })).map(drop)
    }

    pub fn url(&self) -> Result<String, String> {
        self.get("url")
    }

    pub fn title(&self) -> Result<String, String> {
        self.get("title")
    }

    /// Returns the visible text of the first element that `css` selects.
    pub fn text(&self, css: &str) -> Result<String, String> {
        self.get(&self.of(css, "text")?)
    }

    /// Returns the current value of a field, which may differ from the page's source.
    pub fn value(&self, css: &str) -> Result<String, String> {
        self.get(&self.of(css, "property/value")?)
    }

    /// Presses an element. Fails while it is covered or cannot be seen.
    pub fn press(&self, css: &str) -> Result<(), String> {
        self.post(&self.of(css, "click")?, &json!({})).map(drop)
    }

    /// Empties a field.
    pub fn clear(&self, css: &str) -> Result<(), String> {
        self.post(&self.of(css, "clear")?, &json!({})).map(drop)
    }

    /// Types key by key, as a person does.
    pub fn keys(&self, css: &str, text: &str) -> Result<(), String> {
        self.post(&self.of(css, "value")?, &json!({ "text": text })).map(drop)
    }

    /// Makes all further commands refer to the content of this frame.
    pub fn enter(&self, css: &str) -> Result<(), String> {
        self.post("frame", &json!({ "id": { ELEMENT: self.element(css)? } })).map(drop)
    }

    /// Makes all further commands refer to the whole page again.
    pub fn leave(&self) -> Result<(), String> {
        self.post("frame", &json!({ "id": null })).map(drop)
    }

    /// Returns a PNG of what the window shows.
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
    /// Ends the session and with it the browser. If the driver is gone, so is the browser.
    fn drop(&mut self) {
        let _ = command(&self.driver, "DELETE", &self.path, None);
    }
}

/// Returns an error unless the driver accepts sessions.
pub fn is_up(driver: &str) -> Result<(), String> {
    let status = command(driver, "GET", "/status", None)?;
    if status["ready"] == true { Ok(()) } else { Err(status.to_string()) }
}

/// Returns the answer's field `value` or its error: the first line of the driver's message, which begins with the error's name.
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
    stream.set_read_timeout(Some(COMMAND_DEADLINE))?;
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
    // Read up to the empty line. The status code repeats what the body says.
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
