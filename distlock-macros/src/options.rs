//! The options in the attribute, and the table that defines them.
//!
//! [`TABLE`] is the only list of options. To add an option, add a row, and a parser in `value` if its value is of a new
//! kind.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, Ident, Lit, LitStr, Path, Result, Token, token};

use crate::duration;
use crate::keys::{self, KeySource, KeySources};
use crate::suggest;
use crate::syntax::Errors;
use crate::syntax::{comma, once, skip_to_comma, store};
use crate::value::{self, OnFailValue, SettingValue, Time};

/// The options of one attribute, as far as they were given.
#[derive(Default)]
pub(crate) struct AttributeOptions {
    pub(crate) key: Option<KeySource>,
    pub(crate) keys: Option<KeySources>,
    /// The settings, in the order of the table.
    pub(crate) settings: Vec<Setting>,
    pub(crate) prefix: Option<Expr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) manager: Option<Expr>,
    pub(crate) when: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) on_fail: Option<OnFailValue>,
    pub(crate) map_err: Option<Expr>,
    /// Whether the function is not `async` and may block its caller.
    pub(crate) blocking: Option<bool>,
    pub(crate) krate: Option<Path>,
    /// The names of all options that were given or meant, including those with mistakes.
    given: Vec<Ident>,
}

/// An option that is set on the runtime's request for a lock by the method of the same name.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: SettingValue,
}

/// One option in the table.
struct OptionRow {
    name: &'static str,
    /// An example of a value, for messages.
    example: &'static str,
    read: ReadOption,
}

type ReadOption = fn(&mut AttributeOptions, &GivenOption<'_>) -> Result<()>;

const fn row(name: &'static str, example: &'static str, read: ReadOption) -> OptionRow {
    OptionRow { name, example, read }
}

const TABLE: [OptionRow; 21] = [
    row("key", r#""order:{order_id}""#, |options, given| given.key(options)),
    row("keys", r#"["…", "…"]"#, |options, given| given.once(&mut options.keys, keys::keys)),
    row("ttl", r#""5s""#, |options, given| given.setting(options, value::ttl)),
    row("wait", r#""2s""#, |options, given| given.setting(options, value::wait)),
    row("renew", "false", |options, given| given.setting(options, value::boolean)),
    row("max_hold", r#""5m""#, |options, given| given.setting(options, value::max_hold)),
    row("min_hold", r#""5s""#, |options, given| given.setting(options, value::min_hold)),
    row("on_lost", "continue", |options, given| given.setting(options, value::on_lost)),
    row("release", "background", |options, given| given.setting(options, value::release)),
    row("on_fail", "skip", |options, given| given.once(&mut options.on_fail, value::on_fail)),
    row("map_err", "|error| …", |options, given| {
        given.once(&mut options.map_err, value::map_err)
    }),
    row("reentrant", "true", |options, given| given.setting(options, value::boolean)),
    row("mode", "read", |options, given| given.setting(options, value::mode)),
    row("permits", "5", |options, given| given.setting(options, value::permits)),
    row("manager", "…", |options, given| given.once(&mut options.manager, value::manager)),
    row("guard", "lock", |options, given| given.once(&mut options.guard, value::guard)),
    row("name", "…", |options, given| given.once(&mut options.name, value::name)),
    row("when", "…", |options, given| given.once(&mut options.when, value::when)),
    row("prefix", "…", |options, given| given.once(&mut options.prefix, value::prefix)),
    row("blocking", "true", |options, given| given.flag(&mut options.blocking)),
    row("crate", "::distlock", |options, given| given.once(&mut options.krate, value::crate_path)),
];

/// Returns the names of all options.
pub(crate) fn names() -> [&'static str; TABLE.len()] {
    TABLE.each_ref().map(|row| row.name)
}

fn row_of(name: &str) -> Option<(usize, &'static OptionRow)> {
    TABLE.iter().enumerate().find(|(_, row)| row.name == name)
}

impl AttributeOptions {
    pub(crate) fn parse(args: TokenStream, errors: &mut Errors) -> Self {
        let mut options = Self::default();
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = options.option(input) {
                    errors.push(error);
                    skip_to_comma(input);
                }
                if !input.is_empty() {
                    errors.take(comma(input));
                }
            }
            Ok(())
        };
        // `parse2` adds no error of its own, because the parser reads all of the input.
        let _ = parser.parse2(args);
        options.settings.sort_by_key(|setting| row_of(setting.name).map(|(at, _)| at));
        options
    }

    /// Returns the option's name where it was written, if it was given.
    pub(crate) fn given(&self, name: &str) -> Option<&Ident> {
        self.given.iter().find(|given| *given == name)
    }

    /// Returns the value and the place of a setting that is a literal duration.
    pub(crate) fn literal(&self, name: &str) -> Option<(Duration, Span)> {
        self.settings.iter().find_map(|setting| match &setting.value {
            SettingValue::Time(Time::Literal(time, at)) if setting.name == name => {
                Some((*time, *at))
            }
            _ => None,
        })
    }

    fn option(&mut self, input: ParseStream<'_>) -> Result<()> {
        if input.peek(Lit) {
            let literal: Lit = input.parse()?;
            return Err(Error::new(literal.span(), self.without_name(&literal)));
        }
        if input.peek(Token![,]) {
            return Err(input.error("no option stands before this comma: remove it"));
        }
        let Ok(name) = input.call(Ident::parse_any) else {
            return Err(input.error("an option is expected here, for example `ttl = \"5s\"`"));
        };
        let name = name.unraw();
        self.given.push(name.clone());
        if let Some((_, row)) = row_of(&name.to_string()) {
            return (row.read)(self, &GivenOption { row, name: &name, input });
        }
        let (meant, message) = suggest::option(&name.to_string(), &names());
        if let Some(meant) = meant {
            self.given.push(Ident::new(meant, name.span()));
        }
        Err(Error::new(name.span(), message))
    }

    /// Describes the mistake of a value without a name, and guesses the option.
    fn without_name(&mut self, literal: &Lit) -> String {
        let text = literal.to_token_stream();
        let is_time = matches!(literal, Lit::Str(text) if duration::parse(&text.value()).is_ok());
        let meant = if is_time { "ttl" } else { "key" };
        if !is_time && (self.given("key").is_some() || self.given("keys").is_some()) {
            return format!("several locks are taken with `keys = [\"…\", {text}]`");
        }
        self.given.push(Ident::new(meant, literal.span()));
        format!("an option needs its name: write `{meant} = {text}`")
    }
}

/// An option whose name was just read.
struct GivenOption<'a> {
    row: &'static OptionRow,
    name: &'a Ident,
    input: ParseStream<'a>,
}

impl GivenOption<'_> {
    fn once<T>(
        &self,
        slot: &mut Option<T>,
        value: impl FnOnce(ParseStream<'_>) -> Result<T>,
    ) -> Result<()> {
        once(slot, self.name, self.row.example, self.input, value)
    }

    /// Parses an option that may stand alone.
    fn flag(&self, slot: &mut Option<bool>) -> Result<()> {
        if self.input.is_empty() || self.input.peek(Token![,]) {
            return store(slot, self.name, true);
        }
        self.once(slot, value::flag)
    }

    /// Parses a setting of the request.
    fn setting(
        &self,
        options: &mut AttributeOptions,
        value: fn(ParseStream<'_>) -> Result<SettingValue>,
    ) -> Result<()> {
        let name = self.row.name;
        let settings = &mut options.settings;
        let before = settings.iter().position(|setting| setting.name == name);
        let mut slot = before.map(|at| settings.swap_remove(at).value);
        let read = self.once(&mut slot, value);
        settings.extend(slot.map(|value| Setting { name, value }));
        read
    }

    fn key(&self, options: &mut AttributeOptions) -> Result<()> {
        let Self { name, input, .. } = *self;
        let slot = &mut options.key;
        if input.peek(token::Paren) {
            return store(slot, name, keys::format_call(name, input)?);
        }
        match keys::values_outside(input, |name| row_of(name).is_some()) {
            Some(error) => Err(error),
            None => self.once(slot, keys::key),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(args: &str) -> (AttributeOptions, Vec<String>) {
        let mut errors = Errors::default();
        let options = AttributeOptions::parse(args.parse().expect(args), &mut errors);
        (options, errors.messages())
    }

    #[test]
    fn reads_every_option() {
        let (options, errors) = parse(
            r#"key = "order:{id}", ttl = "5s", wait = TWO, renew = false, manager = &self.locks,
               max_hold = "1m", min_hold = self.least(), on_lost = continue, reentrant = true,
               mode = read, permits = LIMIT, release = background, name = "n", prefix = "p", when = a && b, guard = lock, on_fail = skip, map_err = |e| e.into(),
               crate = ::other,"#,
        );
        assert_eq!(errors, [""; 0]);
        assert!(options.key.is_some() && options.manager.is_some() && options.krate.is_some());
        let literal = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(options.literal("ttl").map(|(time, _)| time), literal(5));
        assert_eq!(options.literal("max_hold").map(|(time, _)| time), literal(60));
        assert!(options.literal("wait").is_none() && options.literal("min_hold").is_none());
        assert!(options.name.is_some() && options.prefix.is_some());
        for (name, is_so) in [
            (
                "wait",
                (|value| matches!(value, SettingValue::Time(Time::Expr(_))))
                    as fn(&SettingValue) -> bool,
            ),
            ("min_hold", |value| matches!(value, SettingValue::Time(Time::Expr(_)))),
            ("renew", |value| matches!(value, SettingValue::Bool(false))),
            ("reentrant", |value| matches!(value, SettingValue::Bool(true))),
            ("on_lost", |value| matches!(value, SettingValue::Variant("OnLost", "Continue"))),
            ("mode", |value| matches!(value, SettingValue::Variant("LockMode", "Read"))),
            ("permits", |value| matches!(value, SettingValue::Number(_))),
            ("release", |value| matches!(value, SettingValue::Variant("Release", "Background"))),
        ] {
            let setting = options.settings.iter().find(|setting| setting.name == name);
            assert!(setting.is_some_and(|setting| is_so(&setting.value)), "{name}");
        }
        assert!(options.when.is_some() && options.guard.is_some());
        assert!(matches!(options.on_fail, Some(OnFailValue::Skip(_))) && options.map_err.is_some());
    }

    #[test]
    fn settings_come_in_the_order_of_the_table() {
        let (options, errors) = parse(r#"renew = false, wait = "1s", ttl = "5s""#);
        let names: Vec<&str> = options.settings.iter().map(|setting| setting.name).collect();
        assert_eq!((names, errors), (vec!["ttl", "wait", "renew"], vec![]));
    }

    #[test]
    fn what_the_table_gives_as_an_example_is_accepted() {
        for row in TABLE.iter().filter(|row| row.example != "…") {
            let (_, errors) = parse(&format!("{} = {}", row.name, row.example.replace('…', "x")));
            assert_eq!(errors, [""; 0], "{} = {}", row.name, row.example);
        }
    }

    #[test]
    fn no_wait_has_two_spellings() {
        for args in ["wait = none", r#"wait = "0s""#] {
            let (options, errors) = parse(args);
            let wait = options.literal("wait").map(|(time, _)| time);
            assert_eq!(wait, Some(Duration::ZERO), "{args}: {errors:?}");
        }
    }

    #[test]
    fn mistakes_are_reported_together_and_parsing_goes_on() {
        let (options, errors) =
            parse(r#"ttl = "5", wiat = "2s", renew = "false", key = "{}", manager = m"#);
        assert_eq!(errors.len(), 4, "{errors:?}");
        assert!(options.manager.is_some() && options.given("key").is_some());
    }

    #[test]
    fn every_mistake_names_the_fix() {
        for (args, words) in [
            (r#""order:{id}""#, "write `key = \"order:{id}\"`"),
            ("key", "write `key = \"order:{order_id}\"`"),
            ("reentrant, key", "write `reentrant = true`"),
            ("key =", "a value for `key` is missing"),
            ("key = , ttl = 5", "a value for `key` is missing"),
            ("key = 5", "a text in quotes"),
            (r#"key = "a", key = "b""#, "given twice"),
            (r#"ttl: "5s""#, r#"write `ttl = "5s"`"#),
            ("key == 5", "with a plain `=`"),
            ("key => 5", "with a plain `=`"),
            (",", "before this comma"),
            ("@", "an option is expected here"),
            (r#"key = "a", "5s""#, "write `ttl = \"5s\"`"),
            (r#"key = "a", "b""#, "write `keys = [\"…\", \"b\"]`".trim_start_matches("write ")),
            ("wait = None", "write `wait = none`"),
            ("max_hold = None", "leave the option out"),
            ("guard = mut lock", "alone"),
            ("ttl = 5", "a text with its unit"),
            ("ttl = 5s", r#"in quotes: `ttl = "5s"`"#),
            (r#"ttl = "5ms""#, "at least 10ms"),
            ("ttl = none", "always has a `ttl`"),
            (r#"wait = "none""#, "without quotes"),
            (r#"wait = "2""#, "has no unit"),
            (r#"key = "a" ttl = "5s""#, "a comma is missing before this option"),
            (r#"key = "a"; ttl = "5s""#, "expected a comma"),
            (r#"key = "a:{}", id"#, r#"write `key("a:{}", id)`"#),
            (
                r#"key = "a:{}:{}", self.a(), b, wait = "1s""#,
                r#"write `key("a:{}:{}", self.a(), b)`"#,
            ),
            (r#"key = "a:{x}", x = self.a"#, r#"write `key("a:{x}", x = self.a)`"#),
            (r#"key = "a:{}", wait = "1s""#, "`{}` names nothing"),
            (r#"crate = "::other""#, "without quotes"),
            (r#"timeout = "2s""#, "called `wait`"),
            (r#"waitTime = "2s""#, "called `wait`"),
            (r#"leaseTime = "2s""#, "`renew = false`"),
            ("lockAtMostFor = 1", "`max_hold`"),
            ("lock_at_least_for = 1", "`min_hold`"),
            ("pool = x", "`manager`"),
            ("shared = true", "write `mode = read`"),
            ("read", "write `mode = read`"),
            ("lockType = READ", "called `mode`"),
            ("mode = shared", "write `read`"),
            ("mode = LockMode::Read", "write `read`"),
            (r#"mode = "read""#, "write `read`, without quotes"),
            ("mode = |e| e", "write `read`"),
            ("limit = 5", "called `permits`"),
            ("max_concurrent = 5", "called `permits`"),
            ("concurrency = 5", "called `permits`"),
            ("count = 5", "called `permits`"),
            ("slots = 5", "called `permits`"),
            ("max_leases = 5", "called `permits`"),
            ("maxCount = 5", "called `permits`"),
            ("permit = 5", "did you mean `permits`?"),
            ("permits = 0", "write at least `permits = 1`"),
            ("permits = 0x0_u32", "write at least `permits = 1`"),
            ("permits = -1", "`permits = 5`"),
            ("permits = 1.5", "`permits = 5`"),
            (r#"permits = "5""#, "write `5`, without quotes"),
            (r#"permits = "five""#, "`permits = 5`"),
            ("permits = none", "leave the option out"),
            ("keys = []", "name at least one"),
            (r#"keys = "a""#, "write `key = \"a\"`"),
            (r#"keys = ("a", "b")"#, "in brackets"),
            (r#"key = ["a", "b"]"#, "`keys = […]`"),
            ("key = |e| e", "a text in quotes"),
            ("key()", "say what to lock"),
            ("key(id)", "a text in quotes comes first"),
            (r#"key("{}:{}", id)"#, "no value number 2: only 1 value follows"),
            (r#"key("{}", id, other)"#, "no place in the text"),
            (r#"key("{}", x = id, other)"#, "come before"),
            (r#"key("{:1$}", id)"#, "a name"),
            (r#"ttl = "400d""#, "at most 365 days"),
            (r#"max_hold = "1ms""#, "at least 10ms"),
            ("max_hold = none", "leave the option out"),
            (r#"on_lost = "cancel""#, "write `cancel`, without quotes"),
            ("on_lost = abort", "write `cancel`"),
            ("on_lost = |e| e", "write `cancel`"),
            (r#"release = "wait""#, "write `wait`, without quotes"),
            ("release = later", "write `wait`"),
            ("release", "write `release = background`"),
            ("relase = wait", "did you mean `release`?"),
            (r#"on_fail = "skip""#, "write `skip`, without quotes"),
            ("on_fail = None", "write `on_fail = |_| None`"),
            ("on_fail = Ok(())", "write `on_fail = |_| Ok(())`"),
            ("on_fail = || 5", "write `on_fail = |error| …`"),
            ("on_fail = async |e| 5", "without `async`"),
            ("map_err = Err(5)", "write `map_err = |_|"),
            (r#"guard = "lock""#, "write `lock`, without quotes"),
            ("guard = a.b", "`guard = lock`"),
            ("guard = _", "`guard = lock`"),
            ("name = pay", "a text in quotes"),
            (r#"name = """#, "a text in quotes"),
            (r#"when = "x > 5""#, "without quotes"),
            (r#"prefix = """#, "write `prefix = none`"),
            (r#"prefix = "none""#, "write `none`, without quotes"),
            (r#"prefix = "{shop}""#, "must not contain"),
            (r#"prefix = "shop:""#, "without the `:`"),
            ("prefix = 5", "a prefix is a text"),
            ("reentrant = 1", "write `true` or `false`"),
            ("tll = 1", "did you mean `ttl`?"),
            ("crat = ::a", "did you mean `crate`?"),
            ("wait = 0", "write `wait = none`"),
            ("wait = -1", "a text with its unit"),
            (r#"min_hold = "400d""#, "at most 365 days"),
            ("on_fail = Skip", "write `skip`"),
            (r#"on_fail = "busy""#, r#"`|_| "busy"`"#),
            ("on_fail = vec![]", "write `on_fail = |_| vec!"),
            ("on_fail = panic!()", "write `on_fail = |_| panic!"),
            ("prefix = None", "write `prefix = none`"),
            ("bananas = 1", "there are `key`, `keys`"),
        ] {
            let (_, errors) = parse(args);
            assert!(errors.iter().any(|e| e.contains(words)), "{args}: {errors:?}");
        }
    }
}
