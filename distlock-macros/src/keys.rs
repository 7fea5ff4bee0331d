//! The values of `key`, `keys` and `key!`: templates with values, or expressions.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token, parenthesized};

use crate::syntax::{Errors, comma, once};
use crate::template::{KeyTemplate, TemplateValues};
use crate::value::{self, expr, is_path, text_of, ungroup};

/// One key to lock.
pub(crate) enum KeySource {
    Template(KeyTemplate),
    /// `key("order:{}", order.id)`.
    Call(KeyTemplate, TemplateValues),
    /// An expression of a type that implements `Into<LockKey>`. It is not formatted.
    Expr(Expr),
}

/// Several keys to lock.
pub(crate) enum KeySources {
    Array(Vec<KeySource>),
    /// An expression that iterates over keys.
    Expr(Expr),
}

/// Parses a text in quotes, without checking it.
pub(crate) fn text(input: ParseStream<'_>) -> Result<LitStr> {
    match expr(input)? {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => Ok(literal),
        other => Err(Error::new_spanned(other, NOT_A_TEMPLATE)),
    }
}

const NOT_A_TEMPLATE: &str =
    "a key is a text in quotes, with arguments in braces: `\"order:{order_id}\"`";

pub(crate) fn key(input: ParseStream<'_>) -> Result<KeySource> {
    key_value(expr(input)?)
}

fn key_value(expr: Expr) -> Result<KeySource> {
    match ungroup(expr) {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => {
            KeyTemplate::parse(literal).map(KeySource::Template)
        }
        Expr::Call(call) if is_path(&call.func, "key") => {
            let span = call.paren_token.span.join();
            arguments(call.args, span)
        }
        Expr::Array(array) => {
            Err(Error::new_spanned(array, "several locks are taken with `keys = […]`"))
        }
        other @ (Expr::Lit(_) | Expr::Tuple(_) | Expr::Closure(_)) => {
            Err(Error::new_spanned(other, NOT_A_TEMPLATE))
        }
        other => Ok(KeySource::Expr(other)),
    }
}

/// Reports values outside of parentheses, as in `key = "cfg:{}", self.name`, and skips them. The name of an option
/// ends the values.
pub(crate) fn values_outside(
    input: ParseStream<'_>,
    is_option: impl Fn(&str) -> bool,
) -> Option<Error> {
    let ahead = input.fork();
    ahead.parse::<Token![=]>().ok()?;
    let literal: LitStr = ahead.parse().ok()?;
    let mut values: Punctuated<Expr, Token![,]> = Punctuated::new();
    while ahead.peek(Token![,]) {
        let next = ahead.fork();
        next.parse::<Token![,]>().ok()?;
        let is_value = if next.peek(Ident::peek_any) && next.peek2(Token![=]) {
            let name = next.fork().call(Ident::parse_any).ok()?.unraw().to_string();
            !is_option(&name) && KeyTemplate::takes_value(&literal, Some(&name))
        } else {
            !next.is_empty() && KeyTemplate::takes_value(&literal, None)
        };
        let Some(value) = is_value.then(|| next.parse::<Expr>().ok()).flatten() else {
            break;
        };
        values.push(value);
        ahead.advance_to(&next);
    }
    if values.is_empty() {
        return None;
    }
    input.advance_to(&ahead);
    let texts: Vec<String> = values.iter().map(text_of).collect();
    let (text, texts) = (literal.token(), texts.join(", "));
    let message =
        format!("a text and its values stand in parentheses: write `key({text}, {texts})`");
    Some(Error::new_spanned(values, message))
}

/// Parses the `("order:{}", order.id)` after the name `key`.
pub(crate) fn format_call(name: &Ident, input: ParseStream<'_>) -> Result<KeySource> {
    let content;
    parenthesized!(content in input);
    arguments(content.parse_terminated(<Expr as syn::parse::Parse>::parse, Token![,])?, name.span())
}

/// Parses the arguments in the parentheses of `key(…)`.
fn arguments(arguments: Punctuated<Expr, Token![,]>, span: proc_macro2::Span) -> Result<KeySource> {
    let mut arguments = arguments.into_iter();
    let literal = match arguments.next().map(ungroup) {
        Some(Expr::Lit(ExprLit { lit: Lit::Str(literal), .. })) => literal,
        Some(other) => {
            return Err(Error::new_spanned(
                other,
                "a text in quotes comes first: `key(\"order:{}\", order.id)`",
            ));
        }
        None => {
            return Err(Error::new(span, "say what to lock: `key(\"order:{}\", order.id)`"));
        }
    };
    with_values(literal, arguments)
}

/// Makes a key of a template and the values that follow it.
pub(crate) fn with_values(
    literal: LitStr,
    arguments: impl IntoIterator<Item = Expr>,
) -> Result<KeySource> {
    let mut values = TemplateValues::default();
    for argument in arguments.into_iter().map(ungroup) {
        match argument {
            Expr::Assign(assign) => {
                let name = match &*assign.left {
                    Expr::Path(path) => path.path.get_ident(),
                    _ => None,
                };
                let Some(name) = name.cloned() else {
                    let message = "a name is expected before the `=`";
                    return Err(Error::new_spanned(assign.left, message));
                };
                values.named.push((name, *assign.right));
            }
            value if values.named.is_empty() => values.positional.push(value),
            value => {
                let message = "values without a name come before those with one";
                return Err(Error::new_spanned(value, message));
            }
        }
    }
    let template = KeyTemplate::parse_call(literal, &values)?;
    Ok(KeySource::Call(template, values))
}

pub(crate) fn keys(input: ParseStream<'_>) -> Result<KeySources> {
    match expr(input)? {
        Expr::Array(array) if array.elems.is_empty() => Err(Error::new_spanned(
            array,
            "no key: name at least one, for example `keys = [\"account:{from}\", \"account:{to}\"]`",
        )),
        Expr::Array(array) => {
            let mut mistakes: Option<Error> = None;
            let mut keys = Vec::new();
            for element in array.elems {
                match (key_value(element), &mut mistakes) {
                    (Ok(key), _) => keys.push(key),
                    (Err(error), Some(first)) => first.combine(error),
                    (Err(error), none) => *none = Some(error),
                }
            }
            mistakes.map_or(Ok(KeySources::Array(keys)), Err)
        }
        Expr::Lit(literal) => {
            let text = literal.to_token_stream();
            let message =
                format!("`keys` takes several: write `key = {text}`, or `keys = [{text}, …]`");
            Err(Error::new_spanned(literal, message))
        }
        Expr::Tuple(tuple) => {
            Err(Error::new_spanned(tuple, "write the keys in brackets: `keys = [\"…\", \"…\"]`"))
        }
        other => Ok(KeySources::Expr(other)),
    }
}

/// The arguments of `key!`.
pub(crate) struct KeyCall {
    pub(crate) key: KeySource,
    /// The text; names in the template are resolved at its place.
    pub(crate) literal: LitStr,
    pub(crate) krate: Option<Path>,
}

impl KeyCall {
    pub(crate) fn parse(input: TokenStream, errors: &mut Errors) -> Option<Self> {
        errors.take(Self::read.parse2(input))
    }

    fn read(input: ParseStream<'_>) -> Result<Self> {
        if input.is_empty() {
            let example = "say what to lock, for example `key!(\"order:{order_id}\")`";
            return Err(input.error(example));
        }
        let literal = text(input)?;
        let (mut values, mut krate) = (Vec::new(), None);
        while !input.is_empty() {
            comma(input)?;
            if input.is_empty() {
                break;
            }
            if input.peek(Token![crate]) && !input.peek2(Token![::]) {
                let name = input.call(Ident::parse_any)?;
                once(&mut krate, &name, "::distlock", input, value::crate_path)?;
            } else {
                values.push(input.parse()?);
            }
        }
        let key = match values.is_empty() {
            true => KeySource::Template(KeyTemplate::parse(literal.clone())?),
            false => with_values(literal.clone(), values)?,
        };
        Ok(Self { key, literal, krate })
    }
}
