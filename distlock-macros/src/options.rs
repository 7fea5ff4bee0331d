//! What stands in the attribute, each value with the place it was written at.
//!
//! [`TABLE`] has a row for each option, and no other list does: an option is added by adding its row,
//! with a reader in `value` if its value is of a new kind.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, Ident, Lit, LitStr, Path, Result, Token, token};

use crate::duration;
use crate::errors::Errors;
use crate::keys::{self, KeyValue, Keys};
use crate::suggest;
use crate::syntax::{comma, once, skip_to_comma, store};
use crate::value::{self, OnFail, Time, Value};

/// Every option, as far as it was given.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) key: Option<KeyValue>,
    pub(crate) keys: Option<Keys>,
    /// In the order of the table.
    pub(crate) settings: Vec<Setting>,
    pub(crate) prefix: Option<Expr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) manager: Option<Expr>,
    pub(crate) when: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) on_fail: Option<OnFail>,
    pub(crate) map_err: Option<Expr>,
    /// The function is not `async`, and is to block its caller.
    pub(crate) blocking: Option<bool>,
    pub(crate) krate: Option<Path>,
    /// The names of all options that were given or meant, also of those with mistakes.
    given: Vec<Ident>,
}

/// An option that is set on the runtime's request for a lock by the method of the same name.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
}

/// All that the parser knows of an option.
struct Row {
    name: &'static str,
    /// A value, for messages.
    example: &'static str,
    read: Read,
}

type Read = fn(&mut Options, &Given<'_>) -> Result<()>;

const fn row(name: &'static str, example: &'static str, read: Read) -> Row {
    Row { name, example, read }
}

const TABLE: [Row; 21] = [
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

/// The names of all options.
pub(crate) fn names() -> [&'static str; TABLE.len()] {
    TABLE.each_ref().map(|row| row.name)
}

fn row_of(name: &str) -> Option<(usize, &'static Row)> {
    TABLE.iter().enumerate().find(|(_, row)| row.name == name)
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
        options.settings.sort_by_key(|setting| row_of(setting.name).map(|(at, _)| at));
        options
    }

    /// The option's name, where it was given.
    pub(crate) fn given(&self, name: &str) -> Option<&Ident> {
        self.given.iter().find(|given| *given == name)
    }

    /// The setting of this name, if it is a duration that is known now, and where it is written.
    pub(crate) fn literal(&self, name: &str) -> Option<(Duration, Span)> {
        self.settings.iter().find_map(|setting| match &setting.value {
            Value::Time(Time::Literal(time, at)) if setting.name == name => Some((*time, *at)),
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
            return (row.read)(self, &Given { row, name: &name, input });
        }
        let (meant, message) = suggest::option(&name.to_string(), &names());
        if let Some(meant) = meant {
            self.given.push(Ident::new(meant, name.span()));
        }
        Err(Error::new(name.span(), message))
    }

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

/// An option whose name was just read.
struct Given<'a> {
    row: &'static Row,
    name: &'a Ident,
    input: ParseStream<'a>,
}

impl Given<'_> {
    fn once<T>(
        &self,
        slot: &mut Option<T>,
        value: impl FnOnce(ParseStream<'_>) -> Result<T>,
    ) -> Result<()> {
        once(slot, self.name, self.row.example, self.input, value)
    }

    /// An option that may stand alone.
    fn flag(&self, slot: &mut Option<bool>) -> Result<()> {
        if self.input.is_empty() || self.input.peek(Token![,]) {
            return store(slot, self.name, true);
        }
        self.once(slot, value::flag)
    }

    /// An option of the request.
    fn setting(
        &self,
        options: &mut Options,
        value: fn(ParseStream<'_>) -> Result<Value>,
    ) -> Result<()> {
        let name = self.row.name;
        let settings = &mut options.settings;
        let before = settings.iter().position(|setting| setting.name == name);
        let mut slot = before.map(|at| settings.swap_remove(at).value);
        let read = self.once(&mut slot, value);
        settings.extend(slot.map(|value| Setting { name, value }));
        read
    }

    fn key(&self, options: &mut Options) -> Result<()> {
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
mod tests;
