//! What stands in the attribute, each value with the place it was written at.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, Ident, Lit, LitStr, Path, Result, Token, token};

use crate::duration;
use crate::errors::Errors;
use crate::key::Template;
use crate::key_value::{self, KeyValue, Keys};
use crate::suggest;
use crate::value::{self, OnFail, OnLost, Release, Time};

/// Every option, as far as it was given.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) key: Option<KeyValue>,
    pub(crate) keys: Option<Keys>,
    pub(crate) settings: Settings,
    pub(crate) manager: Option<Expr>,
    pub(crate) when: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) on_fail: Option<OnFail>,
    pub(crate) map_err: Option<Expr>,
    pub(crate) krate: Option<Path>,
    /// The names of all options that were given or meant, also of those with mistakes.
    pub(crate) given: Vec<Ident>,
}

/// What the runtime's request for a lock is told, each by a method of the same name.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) ttl: Option<Time>,
    pub(crate) wait: Option<Time>,
    pub(crate) renew: Option<bool>,
    pub(crate) max_hold: Option<Time>,
    pub(crate) min_hold: Option<Time>,
    pub(crate) on_lost: Option<OnLost>,
    pub(crate) release: Option<Release>,
    pub(crate) reentrant: Option<bool>,
    pub(crate) name: Option<LitStr>,
    pub(crate) prefix: Option<Expr>,
}

/// The arguments of `key!`.
pub(crate) struct KeyCall {
    pub(crate) key: KeyValue,
    /// The text's place, which is the template's.
    pub(crate) literal: LitStr,
    pub(crate) krate: Option<Path>,
}

impl Options {
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
        // `parse2` adds no error of its own: the parser goes to the end.
        let _ = parser.parse2(args);
        options
    }

    /// The option's name, where it was given.
    pub(crate) fn given(&self, name: &str) -> Option<&Ident> {
        self.given.iter().find(|given| *given == name)
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
        let Self { key, keys, settings, manager, when, guard, on_fail, map_err, krate, given } =
            self;
        let Settings {
            ttl,
            wait,
            renew,
            max_hold,
            min_hold,
            on_lost,
            release,
            reentrant,
            name: label,
            prefix,
        } = settings;
        match name.to_string().as_str() {
            "key" if input.peek(token::Paren) => {
                let call = key_value::format_call(&name, input)?;
                store(key, &name, call)
            }
            "key" => match key_value::values_outside(input) {
                Some(error) => Err(error),
                None => once(key, &name, input, key_value::key),
            },
            "keys" => once(keys, &name, input, key_value::keys),
            "ttl" => once(ttl, &name, input, value::ttl),
            "wait" => once(wait, &name, input, value::wait),
            "renew" => once(renew, &name, input, value::boolean),
            "max_hold" => once(max_hold, &name, input, value::max_hold),
            "min_hold" => once(min_hold, &name, input, value::min_hold),
            "on_lost" => once(on_lost, &name, input, value::on_lost),
            "release" => once(release, &name, input, value::release),
            "reentrant" => once(reentrant, &name, input, value::boolean),
            "prefix" => once(prefix, &name, input, value::prefix),
            "name" => once(label, &name, input, value::name),
            "manager" => once(manager, &name, input, value::manager),
            "when" => once(when, &name, input, value::when),
            "guard" => once(guard, &name, input, value::guard),
            "on_fail" => once(on_fail, &name, input, value::on_fail),
            "map_err" => once(map_err, &name, input, value::map_err),
            "crate" => once(krate, &name, input, value::crate_path),
            unknown => {
                let (meant, message) = suggest::option(unknown);
                if let Some(meant) = meant {
                    given.push(Ident::new(meant, name.span()));
                }
                Err(Error::new(name.span(), message))
            }
        }
    }
}

impl Options {
    /// A value that stands alone: which option was meant.
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

impl KeyCall {
    pub(crate) fn parse(input: TokenStream, errors: &mut Errors) -> Option<Self> {
        let parser = |input: ParseStream<'_>| {
            if input.is_empty() {
                let example = "say what to lock, for example `key!(\"order:{order_id}\")`";
                return Err(input.error(example));
            }
            let literal = key_value::text(input)?;
            let (mut values, mut krate) = (Vec::new(), None);
            while !input.is_empty() {
                comma(input)?;
                if input.is_empty() {
                    break;
                }
                if input.peek(Token![crate]) && !input.peek2(Token![::]) {
                    let name = input.call(Ident::parse_any)?;
                    once(&mut krate, &name, input, value::crate_path)?;
                } else {
                    values.push(input.parse()?);
                }
            }
            let key = match values.is_empty() {
                true => KeyValue::Template(Template::parse(literal.clone())?),
                false => key_value::with_values(literal.clone(), values)?,
            };
            Ok(Self { key, literal, krate })
        };
        errors.take(parser.parse2(input))
    }
}

/// `name = value`, and not twice.
fn once<T>(
    slot: &mut Option<T>,
    name: &Ident,
    input: ParseStream<'_>,
    value: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    if input.peek(Token![==]) || input.peek(Token![=>]) {
        return Err(input.error(format!("write `{name} = …`, with a plain `=`")));
    }
    if !input.peek(Token![=]) {
        let example = example(&name.to_string());
        return Err(Error::new(
            name.span(),
            format!("`{name}` needs a value: write `{name} = {example}`"),
        ));
    }
    let equals: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(equals.span, format!("a value for `{name}` is missing here")));
    }
    let value = value(input)?;
    store(slot, name, value)
}

/// A value of an option.
fn example(name: &str) -> &'static str {
    match name {
        "key" => "\"order:{order_id}\"",
        "keys" => "[\"…\", \"…\"]",
        "ttl" | "min_hold" => "\"5s\"",
        "wait" => "\"2s\"",
        "max_hold" => "\"5m\"",
        "renew" => "false",
        "reentrant" => "true",
        "on_lost" => "continue",
        "release" => "background",
        "on_fail" => "skip",
        "guard" => "lock",
        "map_err" => "|error| …",
        "crate" => "::distlock",
        _ => "…",
    }
}

/// The one place where an option is stored.
fn store<T>(slot: &mut Option<T>, name: &Ident, value: T) -> Result<()> {
    if slot.is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is given twice: remove one")));
    }
    *slot = Some(value);
    Ok(())
}

fn comma(input: ParseStream<'_>) -> Result<()> {
    if input.peek(Token![,]) {
        input.parse::<Token![,]>().map(drop)
    } else if input.peek(Ident::peek_any) && (input.peek2(Token![=]) || input.peek2(token::Paren)) {
        Err(input.error("a comma is missing before this option"))
    } else {
        let error = input.error("expected a comma and the next option");
        skip_to_comma(input);
        Err(error)
    }
}

/// Goes on with the next option, so that its mistakes are reported too.
fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        if input.parse::<TokenTree>().is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(args: &str) -> (Options, Vec<String>) {
        let mut errors = Errors::default();
        let options = Options::parse(args.parse().expect(args), &mut errors);
        (options, errors.messages())
    }

    #[test]
    fn reads_every_option() {
        let (options, errors) = parse(
            r#"key = "order:{id}", ttl = "5s", wait = TWO, renew = false, manager = &self.locks,
               max_hold = "1m", min_hold = self.least(), on_lost = continue, reentrant = true,
               release = background, name = "n", prefix = "p", when = a && b, guard = lock, on_fail = skip, map_err = |e| e.into(),
               crate = ::other,"#,
        );
        assert_eq!(errors, [""; 0]);
        assert!(options.key.is_some() && options.manager.is_some() && options.krate.is_some());
        let Settings {
            ttl,
            wait,
            renew,
            max_hold,
            min_hold,
            on_lost,
            release,
            reentrant,
            name,
            prefix,
        } = options.settings;
        assert!(matches!(ttl, Some(Time::Literal(d, _)) if d == Duration::from_secs(5)));
        assert!(matches!(wait, Some(Time::Expr(_))));
        assert!(matches!(max_hold, Some(Time::Literal(d, _)) if d == Duration::from_secs(60)));
        assert!(matches!(min_hold, Some(Time::Expr(_))) && name.is_some() && prefix.is_some());
        assert_eq!((renew, reentrant, on_lost), (Some(false), Some(true), Some(OnLost::Continue)));
        assert_eq!(release, Some(Release::Background));
        assert!(options.when.is_some() && options.guard.is_some());
        assert!(matches!(options.on_fail, Some(OnFail::Skip(_))) && options.map_err.is_some());
    }

    #[test]
    fn no_wait_has_two_spellings() {
        for args in ["wait = none", r#"wait = "0s""#] {
            let (options, errors) = parse(args);
            assert!(
                matches!(options.settings.wait, Some(Time::Literal(Duration::ZERO, _))),
                "{args}: {errors:?}"
            );
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
    fn every_mistake_names_the_mend() {
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
            ("permits = 5", "`permits` is not supported yet"),
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
