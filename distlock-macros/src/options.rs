//! What stands in the attribute, each value with the place it was written at.

use std::time::Duration;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token};

use crate::duration;
use crate::fallback::Errors;
use crate::key::Template;
use crate::suggest;

/// Every option, as far as it was given.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) key: Option<Template>,
    /// A key was given or meant, even if it was wrong: it is not missing then.
    pub(crate) key_given: bool,
    pub(crate) ttl: Option<Time>,
    pub(crate) wait: Option<Time>,
    pub(crate) renew: Option<bool>,
    pub(crate) manager: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

/// A length of time: known now, or an expression of type `Duration`.
pub(crate) enum Time {
    Literal(Duration),
    Expr(Expr),
}

/// The arguments of `key!`.
pub(crate) struct KeyCall {
    pub(crate) template: Template,
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

    fn option(&mut self, input: ParseStream<'_>) -> Result<()> {
        if input.peek(syn::Lit) {
            let literal: Lit = input.parse()?;
            let text = literal.to_token_stream();
            self.key_given = true;
            return Err(Error::new(
                literal.span(),
                format!("an option needs its name: write `key = {text}`"),
            ));
        }
        let name = input.call(Ident::parse_any)?;
        match name.to_string().as_str() {
            "key" => {
                self.key_given = true;
                once(&mut self.key, &name, input, template)
            }
            "ttl" => once(&mut self.ttl, &name, input, ttl),
            "wait" => once(&mut self.wait, &name, input, wait),
            "renew" => once(&mut self.renew, &name, input, boolean),
            "manager" => once(&mut self.manager, &name, input, |input| input.parse()),
            "crate" => once(&mut self.krate, &name, input, crate_path),
            unknown => {
                let (meant, message) = suggest::option(unknown);
                self.key_given |= matches!(meant, Some("key" | "keys"));
                Err(Error::new(name.span(), message))
            }
        }
    }
}

impl KeyCall {
    pub(crate) fn parse(input: TokenStream, errors: &mut Errors) -> Option<Self> {
        let parser = |input: ParseStream<'_>| {
            if input.is_empty() {
                let example = "say what to lock, for example `key!(\"order:{order_id}\")`";
                return Err(input.error(example));
            }
            let template = template(input)?;
            let mut krate = None;
            while !input.is_empty() {
                comma(input)?;
                if input.is_empty() {
                    break;
                }
                let name = input.call(Ident::parse_any)?;
                if name != "crate" {
                    return Err(Error::new(
                        name.span(),
                        "`key!` takes a template, and `crate = …` where `distlock` has another name",
                    ));
                }
                once(&mut krate, &name, input, crate_path)?;
            }
            Ok(Self { template, krate })
        };
        errors.take(parser.parse2(input))
    }
}

/// `name = value`, and not twice: the one place where an option is stored.
fn once<T>(
    slot: &mut Option<T>,
    name: &Ident,
    input: ParseStream<'_>,
    value: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    if !input.peek(Token![=]) {
        return Err(Error::new(name.span(), format!("`{name}` needs a value: write `{name} = …`")));
    }
    let equals: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(equals.span, format!("a value for `{name}` is missing here")));
    }
    let value = value(input)?;
    if slot.is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is given twice: remove one")));
    }
    *slot = Some(value);
    Ok(())
}

fn template(input: ParseStream<'_>) -> Result<Template> {
    match input.parse::<Expr>().map(ungroup)? {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => Template::parse(literal),
        other => Err(Error::new_spanned(
            other,
            "a key is a text in quotes, with arguments in braces: `\"order:{order_id}\"`",
        )),
    }
}

fn ttl(input: ParseStream<'_>) -> Result<Time> {
    let least = Duration::from_millis(10);
    match time("ttl", "5s", least, input)? {
        Time::Expr(Expr::Path(path)) if path.path.is_ident("none") => Err(Error::new_spanned(
            path,
            "a lock always has a `ttl`, or a dead holder would keep it for ever: write for example \
             `ttl = \"30s\"` (it is renewed while the body runs)",
        )),
        time => Ok(time),
    }
}

fn wait(input: ParseStream<'_>) -> Result<Time> {
    match time("wait", "2s", Duration::ZERO, input)? {
        Time::Expr(Expr::Path(path)) if path.path.is_ident("none") => {
            Ok(Time::Literal(Duration::ZERO))
        }
        time => Ok(time),
    }
}

/// A duration in quotes, or any expression; `example` is what to write instead of a mistake.
fn time(name: &str, example: &str, least: Duration, input: ParseStream<'_>) -> Result<Time> {
    let expr = ungroup(input.parse::<Expr>()?);
    let Expr::Lit(ExprLit { lit, .. }) = &expr else {
        return Ok(Time::Expr(expr));
    };
    let wrong = |message: String| Err(Error::new(lit.span(), message));
    let text = match lit {
        Lit::Str(text) => text.value(),
        Lit::Int(number) if duration::parse(&number.to_string()).is_ok() => {
            return wrong(format!("put the duration in quotes: `{name} = \"{number}\"`"));
        }
        _ => {
            return wrong(format!(
                "a duration is a text with its unit: write `{name} = \"{example}\"`"
            ));
        }
    };
    if name == "wait" && text == "none" {
        return wrong("write `wait = none`, without quotes".to_owned());
    }
    match duration::parse(&text) {
        Ok(duration) if duration < least => wrong(format!(
            "`{name}` is at least {least:?}: a shorter lease could be over before its answer arrives"
        )),
        Ok(duration) => Ok(Time::Literal(duration)),
        Err(message) => wrong(message),
    }
}

fn boolean(input: ParseStream<'_>) -> Result<bool> {
    let expr = ungroup(input.parse::<Expr>()?);
    match &expr {
        Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => Ok(value.value),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. })
            if matches!(text.value().as_str(), "true" | "false") =>
        {
            let message = format!("write `{}`, without quotes", text.value());
            Err(Error::new(text.span(), message))
        }
        other => Err(Error::new_spanned(other, "write `true` or `false`")),
    }
}

fn crate_path(input: ParseStream<'_>) -> Result<Path> {
    if input.peek(LitStr) {
        let text: LitStr = input.parse()?;
        let message = format!("write the path without quotes: `crate = {}`", text.value());
        return Err(Error::new(text.span(), message));
    }
    let path = input.call(Path::parse_mod_style)?;
    let first = path.segments.first().map(|segment| segment.ident.to_string());
    if path.leading_colon.is_some() || matches!(first.as_deref(), Some("crate" | "$crate")) {
        return Ok(path);
    }
    let text = path.to_token_stream().to_string().replace(' ', "");
    let message = format!(
        "a path that means the same in every module is needed: write `::{text}` for a crate, or \
         `crate::…` for a module of this one"
    );
    Err(Error::new_spanned(path, message))
}

/// A fragment that went through `macro_rules!` arrives in an invisible group.
fn ungroup(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => ungroup(*group.expr),
        other => other,
    }
}

fn comma(input: ParseStream<'_>) -> Result<()> {
    if input.peek(Token![,]) {
        input.parse::<Token![,]>().map(drop)
    } else if input.peek(Ident::peek_any) {
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
               crate = ::other,"#,
        );
        assert_eq!(errors, [""; 0]);
        assert!(options.key.is_some() && options.manager.is_some() && options.krate.is_some());
        assert!(matches!(options.ttl, Some(Time::Literal(d)) if d == Duration::from_secs(5)));
        assert!(matches!(options.wait, Some(Time::Expr(_))));
        assert_eq!(options.renew, Some(false));
    }

    #[test]
    fn no_wait_has_two_spellings() {
        for args in ["wait = none", r#"wait = "0s""#] {
            let (options, errors) = parse(args);
            assert!(
                matches!(options.wait, Some(Time::Literal(Duration::ZERO))),
                "{args}: {errors:?}"
            );
        }
    }

    #[test]
    fn mistakes_are_reported_together_and_parsing_goes_on() {
        let (options, errors) =
            parse(r#"ttl = "5", wiat = "2s", renew = "false", key = "{}", manager = m"#);
        assert_eq!(errors.len(), 4, "{errors:?}");
        assert!(options.manager.is_some() && options.key_given);
    }

    #[test]
    fn every_mistake_names_the_mend() {
        for (args, words) in [
            (r#""order:{id}""#, "write `key = \"order:{id}\"`"),
            ("key", "write `key = …`"),
            ("key =", "a value for `key` is missing"),
            ("key = , ttl = 5", "a value for `key` is missing"),
            ("key = 5", "a text in quotes"),
            (r#"key = "a", key = "b""#, "given twice"),
            (r#"ttl: "5s""#, "write `ttl = …`"),
            ("ttl = 5", "a text with its unit"),
            ("ttl = 5s", r#"in quotes: `ttl = "5s"`"#),
            (r#"ttl = "5ms""#, "at least 10ms"),
            ("ttl = none", "always has a `ttl`"),
            (r#"wait = "none""#, "without quotes"),
            (r#"wait = "2""#, "has no unit"),
            (r#"key = "a" ttl = "5s""#, "a comma is missing before this option"),
            (r#"key = "a"; ttl = "5s""#, "expected a comma"),
            ("crate = other", "write `::other`"),
            (r#"crate = "::other""#, "without quotes"),
            (r#"timeout = "2s""#, "called `wait`"),
            (r#"waitTime = "2s""#, "called `wait`"),
            (r#"leaseTime = "2s""#, "`renew = false`"),
            ("lockAtMostFor = 1", "`max_hold`"),
            ("lock_at_least_for = 1", "`min_hold`"),
            ("pool = x", "`manager`"),
            ("guard = g", "`guard` is not supported yet"),
            ("tll = 1", "did you mean `ttl`?"),
            ("bananas = 1", "there are `key`, `ttl`"),
        ] {
            let (_, errors) = parse(args);
            assert!(errors.iter().any(|e| e.contains(words)), "{args}: {errors:?}");
        }
    }
}
