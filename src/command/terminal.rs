//! What is on the other end of standard output: whether it shows colours, and whether it still listens.

use std::env;
use std::io::{self, IsTerminal as _, Write};

use clap::{Args, ValueEnum};

/// Whether colours are wanted.
#[derive(Clone, Copy, Debug, Args)]
pub struct Colour {
    /// Colours: auto has them on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    color: When,
}

/// When there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

/// Nobody reads longer lines.
const WIDEST: usize = 100;

impl Colour {
    /// How many columns a text may have; `None`: it is no terminal, and is not laid out.
    pub fn width(self) -> Option<usize> {
        let asked = io::stdout().is_terminal() || self.color == When::Always;
        let columns = || terminal_size::terminal_size().map_or(WIDEST, |(width, _)| usize::from(width.0));
        asked.then(|| columns().clamp(20, WIDEST))
    }

    /// Here and now.
    pub fn wanted(self) -> bool {
        let set = |name: &str| env::var_os(name).is_some_and(|it| !it.is_empty());
        match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                io::stdout().is_terminal()
                    && !set("NO_COLOR")
                    && env::var_os("TERM").is_none_or(|it| it != "dumb")
            }
        }
    }
}

/// Standard output of a command that is not done for what it prints: when nobody listens any more (`| head`), it comes to its end all
/// the same, and its exit code tells.
#[derive(Debug)]
pub struct Patient<W> {
    inner: W,
    closed: bool,
}

impl<W: Write> Patient<W> {
    /// Around this one.
    pub fn new(inner: W) -> Self {
        Self { inner, closed: false }
    }

    /// Whoever listens, for a command that is to end when nobody does.
    pub fn listener(&mut self) -> &mut W {
        &mut self.inner
    }

    fn unless_closed(&mut self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            result => result,
        }
    }
}

impl<W: Write> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.closed {
            let result = self.inner.write_all(bytes);
            self.unless_closed(result)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = if self.closed { Ok(()) } else { self.inner.flush() };
        self.unless_closed(result)
    }
}
