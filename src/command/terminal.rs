//! The terminal behind standard output and standard error: how wide it is, whether it shows colours, whether output is still
//! read, and whether a person waits there.

pub mod progress;
pub mod wrap;

use std::io::{self, IsTerminal as _, StdoutLock, Write};

use anstream::AutoStream;
use clap::{Args, ColorChoice};

/// Whether colours are wanted.
#[derive(Clone, Copy, Debug, Args)]
pub struct Colour {
    /// When to use colours; auto: on a terminal, and as NO_COLOR and CLICOLOR_FORCE say
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    color: ColorChoice,
}

/// The greatest width of a manual page; longer lines are hard to read.
const WIDEST_PAGE: usize = 100;
/// The greatest width of other output, whose names and commands make lines longer.
pub const WIDEST: usize = 120;
/// The smallest width for which text is laid out.
const NARROWEST: usize = 20;

/// Returns the width of the terminal, up to this limit; `None`: there is no terminal, or it does not report its width.
fn columns(most: usize) -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0).clamp(NARROWEST, most))
}

impl Colour {
    /// Returns the width for a page; `None`: the output is not a terminal, so the page is not laid out.
    pub fn width(self) -> Option<usize> {
        let asked = io::stdout().is_terminal() || self.color == ColorChoice::Always;
        asked.then(|| columns(WIDEST_PAGE).unwrap_or(WIDEST_PAGE))
    }

    /// Returns whether colours are used.
    pub fn wanted(self) -> bool {
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
        }
    }
}

/// Prints a line to standard error, so that standard output holds only the result.
pub fn print_note(note: &str) {
    let _ = writeln!(io::stderr(), "gatera: {note}");
}

/// A function that returns the width of the terminal at the moment; `None`: lines are not folded.
type Columns = fn() -> Option<usize>;

/// Standard output. Each line of output for people is folded at the width of the terminal. Output for programs is not changed.
#[derive(Debug)]
pub struct Folded<W: Write> {
    inner: W,
    columns: Option<Columns>,
    /// The beginning of a line that is not complete yet.
    line: Vec<u8>,
    /// Whether the command continues when its reader is gone (`| head`), because its exit code still counts.
    outlives_reader: bool,
}

impl Folded<StdoutLock<'static>> {
    /// Wraps standard output. Only output for people is folded, and only on a terminal, whose width may change meanwhile.
    pub fn stdout(for_people: bool) -> Self {
        let folds = for_people && io::stdout().is_terminal();
        Self::new(io::stdout().lock(), folds.then_some(|| columns(WIDEST)))
    }
}

impl<W: Write> Folded<W> {
    fn new(inner: W, columns: Option<Columns>) -> Self {
        Self { inner, columns, line: Vec::new(), outlives_reader: true }
    }

    /// Returns this output for a command that must end when its reader is gone.
    pub fn ending_with_reader(&mut self) -> &mut Self {
        self.outlives_reader = false;
        self
    }

    fn unless_reader_is_gone(&self, result: io::Result<()>) -> io::Result<()> {
        result.or_else(|error| {
            let gone = self.outlives_reader && error.kind() == io::ErrorKind::BrokenPipe;
            if gone { Ok(()) } else { Err(error) }
        })
    }

    fn fold(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(columns) = self.columns.and_then(|columns| columns()) else {
            let begun = std::mem::take(&mut self.line);
            self.inner.write_all(&begun)?;
            return self.inner.write_all(bytes);
        };
        self.line.extend_from_slice(bytes);
        if let Some(last) = self.line.iter().rposition(|byte| *byte == b'\n') {
            let begun = self.line.split_off(last + 1);
            let whole = std::mem::replace(&mut self.line, begun);
            self.inner.write_all(folded(&whole, columns).as_bytes())?;
        }
        Ok(())
    }
}

impl<W: Write> Write for Folded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.fold(bytes);
        self.unless_reader_is_gone(result)?;
        Ok(bytes.len())
    }

    /// Writes an incomplete line, because a question does not end with a line break.
    fn flush(&mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.line);
        let result = self.inner.write_all(&begun).and_then(|()| self.inner.flush());
        self.unless_reader_is_gone(result)
    }
}

impl<W: Write> Drop for Folded<W> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

fn folded(lines: &[u8], columns: usize) -> String {
    let lines = String::from_utf8_lossy(lines);
    let line = |line: &str| wrap::fold(line, columns).into_owned() + "\n";
    lines.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "  why: a member that leaves may be the one another receives its data from";

    fn written(columns: Option<Columns>, parts: &[&str]) -> String {
        let mut screen = Vec::new();
        let mut out = Folded::new(&mut screen, columns);
        for part in parts {
            out.write_all(part.as_bytes()).unwrap();
        }
        drop(out);
        String::from_utf8(screen).unwrap()
    }

    #[test]
    fn a_line_written_in_parts_is_folded_as_a_whole() {
        let folded = "  why: a member that leaves may be the\n    one another receives its data from\n";
        let (head, tail) = LINE.split_at(20);
        assert_eq!(
            written(Some(|| Some(40)), &[LINE, "\n", head, tail, "\nGo on? "]),
            format!("{folded}{folded}Go on? ")
        );
    }

    #[test]
    fn without_a_terminal_nothing_is_folded() {
        let text = format!("{LINE}\n\n{LINE}");
        for columns in [None, Some((|| None) as Columns), Some(|| Some(80))] {
            assert_eq!(written(columns, &[&text]), text);
        }
    }

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_command_continues_without_a_reader_unless_it_must_end() {
        let mut out = Folded::new(Gone, None);
        assert!(out.write_all(b"a\n").is_ok() && out.flush().is_ok());
        let failed = out.ending_with_reader().write_all(b"a\n").unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::BrokenPipe);
        assert!(out.flush().is_err());
    }

    #[test]
    fn a_question_is_asked_before_its_line_ends() {
        let mut screen = Vec::new();
        let mut out = Folded::new(&mut screen, Some(|| Some(40)));
        out.write_all(b"Go on? [y/N] ").unwrap();
        out.flush().unwrap();
        assert_eq!(out.inner, b"Go on? [y/N] ");
    }
}
