//! The body of a request, taken apart in one pass: the envelope, and the objects without what no rule reads.
//!
//! More than half of an object is often the list of who wrote which field (`managedFields`), and the manifest as it was applied;
//! an update has both twice, and usually the same template twice. A parser that checks all of that needs several times as long as
//! for the rest. So these values are cut out here without being parsed, which is safe because the API server wrote them. Owns:
//! where a value begins and ends, and how many values there are. Must not know: kinds.

use std::borrow::Cow;
use std::ops::Range;
use std::slice::Iter;

use memchr::memchr_iter;

/// A body whose values have been found.
pub(super) struct Body<'a> {
    /// The review with an empty value for each object.
    pub(super) envelope: String,
    pub(super) object: Option<ObjectText<'a>>,
    pub(super) old: Option<ObjectText<'a>>,
}

/// The text of an object.
#[derive(Default)]
pub(super) struct ObjectText<'a> {
    /// The text of the whole body.
    body: &'a str,
    /// The place of the object in the body. The places below are in the body, too.
    place: Range<usize>,
    /// The values that no rule reads, in order.
    unread: Vec<Range<usize>>,
    spec: Option<Range<usize>>,
    template: Option<Range<usize>>,
}

/// The text in place of each value that is left out: it can be read as an object, or skipped.
const EMPTY: &str = "{}";
/// The annotation in which `kubectl apply` keeps the manifest.
const APPLIED: &[u8] = b"kubectl.kubernetes.io/last-applied-configuration";

impl<'a> Body<'a> {
    /// Takes a body apart; `None`: it is not JSON of the form of a review.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let mut json = JsonCursor { json: body, at: 0 };
        let (mut object, mut old): (Option<ObjectText<'_>>, Option<ObjectText<'_>>) = (None, None);
        let mut objects = Vec::new();
        json.fields(|json, key| match key {
            b"request" => json.fields(|json, key| {
                let (side, other) = match key {
                    b"object" => (&mut object, &old),
                    b"oldObject" => (&mut old, &object),
                    _ => return json.skip(),
                };
                let start = json.next()?;
                let mut found = ObjectText { body: text, place: start..start, ..ObjectText::default() };
                match json.byte()? {
                    b'n' => return json.skip(),
                    b'{' => json.object(other.as_ref(), &mut found)?,
                    _ => json.skip()?,
                }
                found.place.end = json.at;
                objects.push(found.place.clone());
                side.replace(found).is_none().then_some(())
            }),
            _ => json.skip(),
        })?;
        Some(Self { envelope: without(text, 0..text.len(), &objects).into_owned(), object, old })
    }
}

impl<'a> ObjectText<'a> {
    /// Returns the object without what no rule reads.
    pub(super) fn text(&self) -> Cow<'a, str> {
        without(self.body, self.place.clone(), &self.unread)
    }

    /// Returns the same with an empty template.
    pub(super) fn without_template(&self) -> Cow<'a, str> {
        let mut left_out: Vec<_> = self.unread.iter().chain(&self.template).cloned().collect();
        left_out.sort_by_key(|it| it.start);
        without(self.body, self.place.clone(), &left_out)
    }

    /// Returns whether both have a template, and it is the same byte for byte.
    pub(super) fn has_template_of(&self, other: &Self) -> bool {
        self.template().is_some() && self.template() == other.template()
    }

    /// Returns whether both have a spec, and it is the same byte for byte.
    pub(super) fn has_spec_of(&self, other: &Self) -> bool {
        self.spec().is_some() && self.spec() == other.spec()
    }

    /// Returns where the template is in a spec with the same text that begins there.
    fn template_from(&self, start: usize) -> Option<Range<usize>> {
        let (spec, template) = (self.spec.as_ref()?, self.template.as_ref()?);
        Some(start + template.start - spec.start..start + template.end - spec.start)
    }

    fn spec(&self) -> Option<&'a str> {
        self.body.get(self.spec.clone()?)
    }

    fn template(&self) -> Option<&'a str> {
        self.body.get(self.template.clone()?)
    }
}

/// Returns a part of the body with an empty value in place of these.
fn without<'a>(body: &'a str, part: Range<usize>, values: &[Range<usize>]) -> Cow<'a, str> {
    if values.is_empty() {
        return Cow::Borrowed(&body[part]);
    }
    let left_out: usize = values.iter().map(Range::len).sum();
    let mut kept = String::with_capacity(part.len() - left_out + values.len() * EMPTY.len());
    let mut from = part.start;
    for value in values {
        kept.push_str(&body[from..value.start]);
        kept.push_str(EMPTY);
        from = value.end;
    }
    kept.push_str(&body[from..part.end]);
    Cow::Owned(kept)
}

/// A position in a JSON text. A method returns `None` if the text there is not what the method expects.
struct JsonCursor<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> JsonCursor<'a> {
    fn byte(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    /// Moves to the next byte that is not white space, and returns its place.
    fn next(&mut self) -> Option<usize> {
        while self.byte()?.is_ascii_whitespace() {
            self.at += 1;
        }
        Some(self.at)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.next()?;
        (self.byte()? == byte).then(|| self.at += 1)
    }

    /// Goes through an object. `field` is called with each key as it is written, and must go past the value.
    fn fields(&mut self, mut field: impl FnMut(&mut Self, &[u8]) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        loop {
            self.next()?;
            match self.byte()? {
                b'}' => break,
                b',' => self.at += 1,
                _ => {}
            }
            self.next()?;
            let key = self.string()?;
            self.take(b':')?;
            field(self, key)?;
        }
        self.at += 1;
        Some(())
    }

    /// Goes past the next value if it begins with this text, which is an object: it ends with the closing brace, so it is the
    /// whole value.
    fn skip_same(&mut self, other: Option<&str>) -> Option<()> {
        let other = other.filter(|it| it.starts_with('{'))?;
        self.json.get(self.at..)?.starts_with(other.as_bytes()).then(|| self.at += other.len())
    }

    /// Goes through a Kubernetes object, and notes the places of its spec, its template and what no rule reads. A spec or
    /// template with the same text as in the other object is not gone through again.
    fn object(&mut self, other: Option<&ObjectText<'_>>, found: &mut ObjectText<'_>) -> Option<()> {
        let ObjectText { unread, spec, template, .. } = found;
        self.fields(|json, key| {
            let start = json.next()?;
            match (key, json.byte()?) {
                (b"metadata", b'{') => json.fields(|json, key| {
                    json.next()?;
                    match (key, json.byte()?) {
                        (b"managedFields", _) => unread.push(json.value()?),
                        (b"annotations", b'{') => json.fields(|json, key| {
                            let value = json.value()?;
                            if key == APPLIED {
                                unread.push(value);
                            }
                            Some(())
                        })?,
                        _ => json.skip()?,
                    }
                    Some(())
                })?,
                (b"spec", b'{') => {
                    *template = None;
                    match json.skip_same(other.and_then(ObjectText::spec)) {
                        Some(()) => *template = other.and_then(|it| it.template_from(start)),
                        None => json.fields(|json, key| {
                            let start = json.next()?;
                            if key != b"template" {
                                return json.skip();
                            }
                            json.skip_same(other.and_then(ObjectText::template)).or_else(|| json.skip())?;
                            *template = Some(start..json.at);
                            Some(())
                        })?,
                    }
                    *spec = Some(start..json.at);
                }
                _ => json.skip()?,
            }
            Some(())
        })
    }

    /// Goes past a text in quotes, and returns what is between them, as it is written.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let rest = self.json.get(self.at..)?;
        let mut bytes = rest.iter();
        past_quote(&mut bytes)?;
        let length = rest.len() - bytes.as_slice().len();
        self.at += length;
        rest.get(..length - 1)
    }

    fn skip(&mut self) -> Option<()> {
        self.value().map(|_| ())
    }

    /// Goes past a value of any kind, and returns its place.
    fn value(&mut self) -> Option<Range<usize>> {
        let start = self.next()?;
        let rest = &self.json[start..];
        let mut bytes = rest.iter();
        match bytes.next()? {
            b'"' => past_quote(&mut bytes)?,
            b'{' | b'[' => {
                let mut depth = 1_usize;
                while depth > 0 {
                    match bytes.next()? {
                        b'"' => past_quote(&mut bytes)?,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                }
            }
            _ => {
                let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']'))?;
                bytes = rest[length..].iter();
            }
        }
        self.at = self.json.len() - bytes.as_slice().len();
        Some(start..self.at)
    }
}

/// Goes past the quote that ends a string. Most strings are short, so eight bytes at a time are faster than a search by `memchr`.
fn past_quote(bytes: &mut Iter<'_, u8>) -> Option<()> {
    loop {
        while let Some((word, rest)) = bytes.as_slice().split_first_chunk() {
            let word = u64::from_le_bytes(*word);
            let found = zero_bytes(word ^ repeated(b'"')) | zero_bytes(word ^ repeated(b'\\'));
            if found != 0 {
                *bytes = bytes.as_slice()[found.trailing_zeros() as usize / 8..].iter();
                break;
            }
            *bytes = rest.iter();
        }
        match bytes.next()? {
            b'"' => return Some(()),
            b'\\' => drop(bytes.next()?),
            _ => {}
        }
    }
}

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Returns a word whose lowest bit is in the first byte that is zero; 0 if there is none.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeated(1)) & !word & repeated(0x80)
}

/// Returns an upper bound for the number of values after the first in a JSON text: each needs one `{`, `[` or `,` before it.
/// Those in strings are left out only if there seem to be more than `many` values; counting then stops above `most`.
pub fn value_count(json: &[u8], many: usize, most: usize) -> usize {
    const BEGINNINGS: [u8; 3] = *b"{[,";
    // A loop of our own would compare one byte at a time: the program is optimized for size when it is linked.
    let rough = BEGINNINGS.iter().map(|byte| memchr_iter(*byte, json).count()).sum();
    if rough <= many {
        return rough;
    }
    let (mut bytes, mut count) = (json.iter(), 0);
    while let Some(byte) = bytes.next() {
        count += usize::from(BEGINNINGS.contains(byte));
        if count > most || *byte == b'"' && past_quote(&mut bytes).is_none() {
            break;
        }
    }
    count
}
