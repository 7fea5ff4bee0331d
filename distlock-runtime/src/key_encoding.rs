//! The encoding of values in the templates of keys.
//!
//! # No two argument lists meet in one key
//!
//! A template is literal text with values between it. Two characters of a value are percent-encoded: the first character
//! of the text that follows the value, so that this character, unencoded, ends the value; and `%`, so that a `%` always
//! starts an encoding. From the key alone a reader could tell where each value ends, and what it was. (`:`, `{`, `}` and
//! control characters are encoded as well: they structure keys, choose the Redis Cluster slot, or break a line of a
//! log.)
//!
//! If the text that separates two values begins with `%`, this `%` is doubled: `{a}%{b}` makes `5%%7`.
//! Encoding it as `%25` would not help, because the value may end with an encoded `%` itself. No
//! encoding contains `%%`, so the value ends there. The rest of the text stays as it is written, because
//! a reader already knows where it begins.
//!
//! Values are encoded after they were formatted, widths and fills included. The value writes through its own `Formatter`
//! into a writer that encodes while a [`Part`] is printing.
//!
//! # No float in a key
//!
//! Equal amounts print differently as floats (`0.1 + 0.2` as `0.30000000000000004`, `-0.0` not as `0.0`), so callers that
//! mean the same amount would take different locks. A precision only makes that rarer.
//!
//! Rust cannot express "any type that prints, but not these two". Instead, every value [stands](Stands) in a key as a
//! `u8`, and a float also as an `i32`, while generated code leaves the choice to an integer literal. For all types but
//! floats there is one way, so the literal is a `u8`. For a float there are two. Nothing decides between them, so the
//! literal becomes the default type of an integer, an `i32`, and as such a float is not [`Accepted`]. Unlike a choice by
//! method call, this also waits for types that are known only later (`let id = text.parse()?; key!("{id}")`).

use std::borrow::Cow;
use std::cell::{Cell, Ref, RefMut};
use std::fmt::{self, Write};
use std::marker::PhantomData;
use std::num::{Saturating, Wrapping};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use distlock_core::key::{Flaw, LockKey};

/// A template while it is filled in. Generated code makes it, wraps each value with
/// [`value`](KeyText::value), and prints the whole with [`key`](KeyText::key).
pub struct KeyText<'s> {
    /// The character that ends each value, in the order of printing.
    separators: &'s [Option<char>],
    /// The number of values that have been printed.
    printed: Cell<usize>,
    /// Set while a value is printing.
    in_value: Cell<bool>,
    /// Set after a value that a `%` separates from the next one, until that `%` is printed.
    doubles_percent: Cell<bool>,
}

impl<'s> KeyText<'s> {
    /// Begins a template, with one separator for each time that a [`Part`] of it is printed.
    pub fn new(separators: &'s [Option<char>]) -> Self {
        Self {
            separators,
            printed: Cell::new(0),
            in_value: Cell::new(false),
            doubles_percent: Cell::new(false),
        }
    }

    /// Wraps a value, which is encoded wherever it is printed. `kind` is the literal `0`. It becomes a `u8`, unless the
    /// value is a float.
    pub fn value<'a, T: Stands<As> + ?Sized, As>(
        &'a self,
        value: &'a T,
        _kind: As,
    ) -> Part<'a, T, As> {
        Part { value, text: self, kind: PhantomData }
    }

    /// Wraps a value whose type is a parameter of the function. If the parameter has no bound, rustc proposes `Display`
    /// then, and not [`KeyPart`], which users cannot name.
    pub fn parameter<'a, T: Stands<As> + ?Sized, As>(
        &'a self,
        value: &'a T,
        _kind: As,
    ) -> Part<'a, T, As, Parameter> {
        Part { value, text: self, kind: PhantomData }
    }

    /// Makes the key, from the template's own `format_args!` over parts of this text.
    pub fn key(&self, template: &'static str, arguments: fmt::Arguments<'_>) -> LockKey {
        let mut encoder = Encoder { source: self, out: String::new() };
        let flaw = encoder.write_fmt(arguments).is_err().then_some(Flaw::Display);
        LockKey::of_template(template, encoder.out, flaw)
    }

    fn print_value(&self, print: impl FnOnce() -> fmt::Result) -> fmt::Result {
        self.in_value.set(true);
        let result = print();
        self.in_value.set(false);
        self.doubles_percent.set(self.separator() == Some('%'));
        self.printed.set(self.printed.get() + 1);
        result
    }

    /// Returns the character that ends the value being printed.
    fn separator(&self) -> Option<char> {
        self.separators.get(self.printed.get()).copied().flatten()
    }

    fn is_encoded(&self, c: char) -> bool {
        matches!(c, '%' | ':' | '{' | '}') || c.is_control() || self.separator() == Some(c)
    }
}

/// The writer to which a template is printed.
struct Encoder<'a> {
    source: &'a KeyText<'a>,
    out: String,
}

impl Write for Encoder<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !self.source.in_value.get() {
            if text.starts_with('%') && self.source.doubles_percent.get() {
                self.out.push('%');
            }
            // Formatting may print an empty text before the separator.
            if !text.is_empty() {
                self.source.doubles_percent.set(false);
            }
            self.out.push_str(text);
            return Ok(());
        }
        for c in text.chars() {
            if self.source.is_encoded(c) {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    write!(self.out, "%{byte:02X}")?;
                }
            } else {
                self.out.push(c);
            }
        }
        Ok(())
    }
}

/// Implemented by values that can stand in a key: their `Display` is a stable text.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key",
    label = "`{Self}` does not implement `Display`",
    note = "a key is made of texts that mean the same in every process: use a field that implements `Display`, or implement it",
    note = "a type parameter needs the bound `std::fmt::Display`, and no other"
)]
#[cfg_attr(
    feature = "axum",
    diagnostic::on_unimplemented(
        note = "of an extractor use what is in it: `{{id.0}}`, or bind it, `Path(id): Path<u64>`"
    )
)]
pub trait KeyPart: fmt::Display {}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display + ?Sized> KeyPart for T {}

/// A value of a template. It prints as the value does, and is encoded while it prints.
pub struct Part<'a, T: ?Sized, As = u8, Of = Concrete> {
    value: &'a T,
    text: &'a KeyText<'a>,
    kind: PhantomData<(As, Of)>,
}

/// Marks a value whose type is written out, as far as the attribute can see.
pub struct Concrete;

/// Marks a value whose type is a parameter of the function.
pub struct Parameter;

impl<T: KeyPart + ?Sized, As: Accepted<T>> fmt::Display for Part<'_, T, As> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.print_value(|| self.value.fmt(f))
    }
}

impl<T: fmt::Display + ?Sized, As: Accepted<T>> fmt::Display for Part<'_, T, As, Parameter> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.print_value(|| self.value.fmt(f))
    }
}

/// Implements the other formats, such as `{id:x}`, for values that have them.
macro_rules! forward {
    ($($format:ident)*) => {$(
        impl<T: fmt::$format + ?Sized, As: Accepted<T>, Of> fmt::$format for Part<'_, T, As, Of> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.text.print_value(|| self.value.fmt(f))
            }
        }
    )*};
}

forward!(LowerHex UpperHex Octal Binary LowerExp UpperExp);

/// Implemented by `f32` and `f64`, and by types that print as one.
pub trait Float {}

impl Float for f32 {}
impl Float for f64 {}

macro_rules! prints_as_what_is_in_it {
    ($($outer:ty),*) => {$(
        impl<T: Float + ?Sized> Float for $outer {}
    )*};
}

prints_as_what_is_in_it!(
    &T,
    &mut T,
    Box<T>,
    Rc<T>,
    Arc<T>,
    Ref<'_, T>,
    RefMut<'_, T>,
    MutexGuard<'_, T>,
    RwLockReadGuard<'_, T>,
    RwLockWriteGuard<'_, T>
);
impl<P: Float> Float for Pin<P> {}
impl<T: Float> Float for Wrapping<T> {}
impl<T: Float> Float for Saturating<T> {}
impl<T: Float + ToOwned> Float for Cow<'_, T> {}

/// A way `As` in which a value can stand in a key. The docs of this file explain it.
pub trait Stands<As> {}

impl<T: ?Sized> Stands<u8> for T {}
impl<T: Float + ?Sized> Stands<i32> for T {}

/// Implemented by the ways in which a `T` may stand in a key.
#[diagnostic::on_unimplemented(
    message = "`{T}` cannot be part of a lock key: a float prints differently for equal amounts",
    label = "a float",
    note = "lock a whole number of the smallest unit: `key(\"…{{}}\", cents)`"
)]
pub trait Accepted<T: ?Sized> {}

#[diagnostic::do_not_recommend]
impl<T: ?Sized> Accepted<T> for u8 {}
// With `u8` alone, a literal would always become one.
#[diagnostic::do_not_recommend]
impl<T: ?Sized> Accepted<T> for u16 {}
// For no type that prints. But rustc does not know that before it knows the value's type: for a value whose type is
// never known it asks for the type, and does not claim that it is a float.
#[diagnostic::do_not_recommend]
impl<T: Unprintable + ?Sized> Accepted<T> for i32 {}

/// Implemented by two types, so that rustc assumes neither of them for an unknown type.
pub trait Unprintable {}

impl Unprintable for () {}
impl Unprintable for ((),) {}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    impl KeyText<'_> {
        fn part<'a, T: ?Sized>(&'a self, value: &'a T) -> Part<'a, T> {
            self.value(value, 0)
        }
    }

    const NASTY: [&str; 22] = [
        "", "a", "x-y", "-", "--", ":", "::", "%", "%3A", "%2D", "3A", "2", "D", "{", "}", "{a}",
        "\n", "\u{85}", "→", "ä-ö", "a/b", "%252D-",
    ];

    /// `{a}` SEPARATOR `{b}`, as generated code prints it.
    fn pair(separators: &'static [Option<char>], between: &str, a: &str, b: &str) -> String {
        let text = KeyText::new(separators);
        let (a, b) = (text.part(a), text.part(b));
        text.key("", format_args!("{a}{between}{b}")).as_str().to_owned()
    }

    /// `BEFORE {a} BETWEEN {b} AFTER`, as generated code prints it.
    fn around([before, between, after]: [&str; 3], a: &str, b: &str) -> String {
        let separators = [between.chars().next(), None];
        let text = KeyText::new(&separators);
        let (a, b) = (text.part(a), text.part(b));
        text.key("", format_args!("{before}{a}{between}{b}{after}")).as_str().to_owned()
    }

    /// Every text of up to `longest` of the characters that mean something in a key, and two that
    /// occur in encodings of them.
    fn texts(longest: usize) -> Vec<String> {
        let mut texts = vec![String::new()];
        let mut from = 0;
        for _ in 0..longest {
            let to = texts.len();
            for at in from..to {
                let longer = "%25A:-{}".chars().map(|c| format!("{}{c}", texts[at]));
                let longer: Vec<_> = longer.collect();
                texts.extend(longer);
            }
            from = to;
        }
        texts
    }

    /// Finds two pairs of values whose concatenations are equal, if there are any.
    ///
    /// Two different pairs can only collide if the beginning of one continues where the beginning of the other
    /// has ended. Looking at those is enough; there are 25 million pairs in all.
    fn meeting(beginnings: &[String], ends: &HashSet<String>) -> Option<(String, String)> {
        let known: HashSet<&str> = beginnings.iter().map(String::as_str).collect();
        for long in beginnings {
            for (at, _) in long.char_indices() {
                let (short, rest) = long.split_at(at);
                if known.contains(short)
                    && let Some(end) =
                        ends.iter().find(|end| ends.contains(&format!("{rest}{end}")))
                {
                    return Some((short.to_owned(), format!("{long}{end}")));
                }
            }
        }
        None
    }

    /// Fault: FC6.
    #[test]
    fn no_two_of_all_pairs_of_short_texts_make_the_same_key() {
        let (texts, literals) = (texts(3), texts(2));
        assert_eq!((texts.len(), literals.len()), (585, 73));
        for between in &literals[1..] {
            let beginnings: Vec<_> =
                texts.iter().map(|a| around(["", between, ""], a, "")).collect();
            let ends: Vec<_> = texts.iter().map(|b| around(["", ":", ""], "", b)).collect();
            let ends: HashSet<_> = ends.iter().map(|end| end[1..].to_owned()).collect();
            let different: HashSet<_> = beginnings.iter().collect();
            assert_eq!((different.len(), ends.len()), (585, 585), "{{a}}{between}{{b}}");
            assert_eq!(meeting(&beginnings, &ends), None, "{{a}}{between}{{b}}");
        }
    }

    /// The enumeration of all pairs takes a key for its beginning and its end, put together.
    /// Fault: FC6.
    #[test]
    fn a_key_is_its_beginning_and_its_end() {
        let (texts, literals) = (texts(1), texts(2));
        for between in &literals[1..] {
            for outside in [["", ""], ["%", "%"], ["25", "%2"], ["{", "A:"]] {
                let [before, after] = outside;
                let all = [before, between, after];
                let beginnings = texts.iter().map(|a| around([before, between, ""], a, ""));
                for (a, beginning) in texts.iter().zip(beginnings) {
                    for b in &texts {
                        let end = around(["", ":", after], "", b);
                        assert_eq!(around(all, a, b), format!("{beginning}{}", &end[1..]));
                    }
                }
            }
        }
    }

    /// Fault: H4.
    #[test]
    fn different_arguments_never_make_the_same_key() {
        for between in ["-", "::", "2", "DD", "%", "%2", "%25", "%%", "{x}", "→-", "ab"] {
            for [before, after] in [["", ""], ["%", "%25"], ["a%2", "%"]] {
                let mut seen = HashMap::new();
                for a in NASTY {
                    for b in NASTY {
                        let key = around([before, between, after], a, b);
                        if let Some(other) = seen.insert(key.clone(), (a, b)) {
                            panic!("{other:?} and {:?} make {key:?} around {between:?}", (a, b));
                        }
                    }
                }
            }
        }
    }

    /// Fault: FC6.
    #[test]
    fn three_values_never_make_the_same_key_as_three_others() {
        let texts = texts(1);
        for (first, second) in [("%", "%"), ("%", "2"), ("2", "%5"), ("-", "%"), ("%-", "-%")] {
            let separators = [first.chars().next(), second.chars().next(), None];
            let mut seen = HashSet::new();
            for a in &texts {
                for b in &texts {
                    for c in &texts {
                        let text = KeyText::new(&separators);
                        let (a, b, c) = (text.part(a), text.part(b), text.part(c));
                        let key = text.key("", format_args!("{a}{first}{b}{second}{c}"));
                        assert!(
                            seen.insert(key.as_str().to_owned()),
                            "{{}}{first}{{}}{second}{{}}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_percent_sign_is_doubled_where_it_separates_values_and_nowhere_else() {
        assert_eq!(around(["", "%", ""], "5", "7"), "5%%7");
        assert_eq!(around(["", "%25", ""], "%", "%"), "%25%%25%25");
        assert_eq!(around(["%", "-%", "%"], "5", "7"), "%5-%7%");
        let text = KeyText::new(&[None]);
        let share = text.part(&50);
        assert_eq!(text.key("", format_args!("{share}%")).as_str(), "50%");
    }

    /// Fault: H5.
    #[test]
    fn encodes_what_structures_a_key_and_the_separator() {
        let dash: &'static [Option<char>] = &[Some('-'), None];
        assert_eq!(pair(dash, "-", "x-y", "z"), "x%2Dy-z");
        assert_eq!(pair(dash, "-", "x", "y-z"), "x-y-z");
        assert_eq!(pair(dash, "-", "a:b{c}%\n", "\u{85}"), "a%3Ab%7Bc%7D%25%0A-%C2%85");
        assert_eq!(pair(&[Some('→'), None], "→", "a→b", "→"), "a%E2%86%92b-→".replace('-', "→"));
        assert_eq!(pair(&[None, None], " ", "große Wäsche", "ok"), "große Wäsche ok");
    }

    #[test]
    fn each_occurrence_has_its_own_separator() {
        let text = KeyText::new(&[Some('-'), Some('/'), None]);
        let a = text.part("-/");
        let key = text.key("{a}-{a}/{a}", format_args!("{a}-{a}/{a}"));
        assert_eq!(key.as_str(), "%2D/--%2F/-/");
    }

    #[test]
    fn formats_first_and_encodes_then() {
        let text = KeyText::new(&[Some('-'), Some('0'), None, None, None]);
        let (id, n, word) = (text.part(&7_u64), text.part(&255_u8), text.part("ab"));
        let key = text.key("", format_args!("{word:-^6}-{id:03}0{n:#x}.{n:X}.{n:e}"));
        assert_eq!(key.as_str(), "%2D%2Dab%2D%2D-%30%30700xff.FF.2.55e2");
    }

    #[test]
    fn constants_are_taken_as_they_print() {
        const PREFIX: &str = "shop:{eu}";
        let text = KeyText::new(&[None]);
        let id = text.part("a:b");
        assert_eq!(text.key("", format_args!("{PREFIX}:{id}")).as_str(), "shop:{eu}:a%3Ab");
    }

    #[test]
    fn a_display_that_fails_makes_no_key() {
        struct Failing;
        impl fmt::Display for Failing {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("half")?;
                Err(fmt::Error)
            }
        }
        let text = KeyText::new(&[None]);
        let part = text.part(&Failing);
        let broken = text.key("{x}", format_args!("{part}")).check();
        assert!(broken.is_err_and(|reason| reason.contains("Display")));
    }

    /// Fault: H8.
    #[test]
    fn debug_shows_no_values() {
        let text = KeyText::new(&[None]);
        let mail = text.part("a@example.org");
        let shown = format!("{:?}", text.key("user:{mail}", format_args!("user:{mail}")));
        assert!(shown.contains("user:{mail}") && !shown.contains('@'), "{shown}");
    }
}
