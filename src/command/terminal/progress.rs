//! One line on standard error that shows a person at a terminal what is being done now.
//!
//! Owns: when that line is shown. It appears only on a terminal, once the work has lasted for a second. Code that prints anything
//! else drops it first, which clears the line. Must not know: what the work is.

use std::env;
use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use unicode_width::UnicodeWidthChar as _;

/// The time before the line appears: shorter work needs none.
const DELAY: Duration = Duration::from_secs(1);
/// The shortest time between two changes of the line: faster ones cannot be read.
const PAUSE: Duration = Duration::from_millis(100);
/// The escape sequence that moves to the beginning of the line, and clears it.
const CLEAR: &str = "\r\u{1b}[K";

/// The line that says what is being done. It is cleared when this is dropped.
///
/// A separate thread shows the line and keeps its own time, because work that hangs cannot print.
#[derive(Debug)]
pub struct Progress(Option<(Sender<String>, JoinHandle<()>)>);

impl Progress {
    /// Shows the progress of work that begins now.
    pub fn start() -> Self {
        let shows = io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|it| it != "dumb");
        if shows { Self::shown_on(io::stderr(), DELAY) } else { Self::off() }
    }

    /// Returns a progress that prints nothing, because standard error is not a terminal, or the caller prints by itself.
    pub fn off() -> Self {
        Self(None)
    }

    fn shown_on(mut out: impl Write + Send + 'static, delay: Duration) -> Self {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::Builder::new().spawn(move || {
            // If the terminal cannot be written to, only this line is lost.
            let _ = show_texts(&receiver, delay, &mut out);
        });
        Self(thread.ok().map(|thread| (sender, thread)))
    }

    /// Sets what is being done from now on; an empty text clears the line.
    pub fn show(&self, text: impl FnOnce() -> String) {
        if let Self(Some((sender, _))) = self {
            let _ = sender.send(text());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            // The thread ends when its channel closes, and clears its line first.
            drop(sender);
            let _ = thread.join();
        }
    }
}

fn show_texts(receiver: &Receiver<String>, delay: Duration, out: &mut impl Write) -> io::Result<()> {
    let (began, mut text, mut shown) = (Instant::now(), String::new(), String::new());
    let mut due = delay;
    loop {
        match receiver.recv_timeout(due.saturating_sub(began.elapsed())) {
            Ok(new) => {
                // While the text was empty, the program waited for input: the delay begins only now.
                if text.is_empty() && !new.is_empty() {
                    due = began.elapsed() + delay;
                }
                text = new;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if began.elapsed() < due {
            continue;
        }
        if text != shown {
            print(&cut(&text, columns()), out)?;
            shown.clone_from(&text);
        }
        due = began.elapsed() + PAUSE;
    }
    if !shown.is_empty() {
        print("", out)?;
    }
    Ok(())
}

/// Replaces the line in a single write, so that nothing flickers.
fn print(text: &str, out: &mut impl Write) -> io::Result<()> {
    out.write_all(format!("{CLEAR}{text}").as_bytes())?;
    out.flush()
}

fn columns() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0))
}

/// Cuts a text to one line without its last column, in which some terminals begin the next line.
fn cut(text: &str, columns: usize) -> String {
    let mut room = columns.saturating_sub(1);
    let fits = |c: &char| {
        let wide = c.width().unwrap_or_default();
        let fits = wide <= room;
        room = room.saturating_sub(wide);
        fits
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn long_work_is_shown_and_then_cleared() {
        let screen = Screen::default();
        let progress = Progress::shown_on(screen.clone(), Duration::ZERO);
        progress.show(|| "reading".to_owned());
        while screen.text().is_empty() {
            thread::yield_now();
        }
        assert_eq!(screen.text(), "\r\u{1b}[Kreading");
        drop(progress);
        assert_eq!(screen.text(), "\r\u{1b}[Kreading\r\u{1b}[K");
    }

    #[test]
    fn short_work_is_not_shown() {
        let screen = Screen::default();
        let progress = Progress::shown_on(screen.clone(), Duration::from_secs(3600));
        progress.show(|| "reading".to_owned());
        drop(progress);
        assert_eq!(screen.text(), "");
    }

    #[test]
    fn no_text_is_made_that_is_not_shown() {
        Progress::off().show(|| unreachable!());
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(cut("reading a/b.yaml", 10), "reading a");
        assert_eq!(cut("日本語", 6), "日本");
        assert_eq!(cut("a", 80), "a");
    }
}
