//! The values of options, with one parser for each kind.

use std::time::Duration;

use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token, parse_quote_spanned};

use crate::duration;

/// A duration: a literal, or an expression of type `Duration`.
pub(crate) enum Time {
    Literal(Duration, proc_macro2::Span),
    Expr(Expr),
}

/// The value of an option that is set on the runtime's request by a method.
pub(crate) enum SettingValue {
    Time(Time),
    Bool(bool),
    /// A variant of an enum of the runtime, for example `OnLost::Cancel`.
    Variant(&'static str, &'static str),
    /// A whole number: a literal, or an expression.
    Number(Expr),
}

/// The value of `on_fail`.
pub(crate) enum OnFailValue {
    Skip(Ident),
    Function(Expr),
}

pub(crate) fn ttl(input: ParseStream<'_>) -> Result<SettingValue> {
    match time("ttl", "5s", SHORTEST, input)? {
        Time::Expr(expr) if is_none(&expr) => Err(Error::new_spanned(
            expr,
            "a lock always has a `ttl`, or a dead holder would keep it for ever: write for example \
             `ttl = \"30s\"` (it is renewed while the body runs)",
        )),
        Time::Literal(ttl, span) if ttl > YEAR => Err(Error::new(
            span,
            "`ttl` is at most 365 days: it says how long the lock may outlive a holder that died \
                 (it is renewed while the body runs)",
        )),
        time => Ok(SettingValue::Time(time)),
    }
}

pub(crate) fn wait(input: ParseStream<'_>) -> Result<SettingValue> {
    match time("wait", "2s", Duration::ZERO, input)? {
        Time::Expr(expr) if is_path(&expr, "none") => {
            Ok(SettingValue::Time(Time::Literal(Duration::ZERO, span_of(&expr))))
        }
        Time::Expr(expr) if is_path(&expr, "None") => {
            Err(Error::new_spanned(expr, "write `wait = none`, or leave it out for the manager's"))
        }
        time => Ok(SettingValue::Time(time)),
    }
}

pub(crate) fn max_hold(input: ParseStream<'_>) -> Result<SettingValue> {
    unless_none("max_hold", time("max_hold", "5m", SHORTEST, input)?)
}

pub(crate) fn min_hold(input: ParseStream<'_>) -> Result<SettingValue> {
    match time("min_hold", "30s", Duration::ZERO, input)? {
        Time::Literal(time, span) if time > YEAR => {
            Err(Error::new(span, "`min_hold` is at most 365 days"))
        }
        time => unless_none("min_hold", time),
    }
}

/// The shortest lease. The runtime refuses shorter ones too, because they would end before a reply arrives.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest duration. Longer ones are a mistake of units, and the runtime refuses them too.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn unless_none(name: &str, time: Time) -> Result<SettingValue> {
    match time {
        Time::Expr(expr) if is_none(&expr) => {
            let message = format!("without a `{name}`, leave the option out");
            Err(Error::new_spanned(expr, message))
        }
        time => Ok(SettingValue::Time(time)),
    }
}

/// Parses a duration in quotes, or any expression. `example` is a correct value for messages.
fn time(name: &str, example: &str, least: Duration, input: ParseStream<'_>) -> Result<Time> {
    let expr = expr(input)?;
    let unit = format!("a duration is a text with its unit: write `{name} = \"{example}\"`");
    if matches!(&expr, Expr::Unary(unary) if matches!(*unary.expr, Expr::Lit(_))) {
        return Err(Error::new_spanned(expr, unit));
    }
    let Expr::Lit(ExprLit { lit, .. }) = &expr else {
        return Ok(Time::Expr(expr));
    };
    let wrong = |message: String| Err(Error::new(lit.span(), message));
    let text = match lit {
        Lit::Str(text) => text.value(),
        Lit::Int(number) if name == "wait" && number.to_string() == "0" => {
            return wrong("write `wait = none`".to_owned());
        }
        Lit::Int(number) if duration::parse(&number.to_string()).is_ok() => {
            return wrong(format!("put the duration in quotes: `{name} = \"{number}\"`"));
        }
        _ => return wrong(unit),
    };
    if name == "wait" && text == "none" {
        return wrong("write `wait = none`, without quotes".to_owned());
    }
    match duration::parse(&text) {
        Ok(duration) if duration < least => wrong(format!(
            "`{name}` is at least {least:?}: a shorter lease could be over before its answer arrives"
        )),
        Ok(duration) => Ok(Time::Literal(duration, lit.span())),
        Err(message) => wrong(message),
    }
}

pub(crate) fn boolean(input: ParseStream<'_>) -> Result<SettingValue> {
    flag(input).map(SettingValue::Bool)
}

pub(crate) fn flag(input: ParseStream<'_>) -> Result<bool> {
    match &expr(input)? {
        Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => Ok(value.value),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. })
            if matches!(text.value().as_str(), "true" | "false") =>
        {
            Err(without_quotes(text))
        }
        other => Err(Error::new_spanned(other, "write `true` or `false`")),
    }
}

pub(crate) fn on_lost(input: ParseStream<'_>) -> Result<SettingValue> {
    let choices = [("cancel", "Cancel"), ("continue", "Continue")];
    let wrong = "write `cancel` (the body is dropped, the call returns `LockError::Lost`) or \
                 `continue` (it runs to its end, the loss is only reported)";
    one_of(choices, wrong, input).map(|variant| SettingValue::Variant("OnLost", variant))
}

pub(crate) fn release(input: ParseStream<'_>) -> Result<SettingValue> {
    let choices = [("wait", "Wait"), ("background", "Background")];
    let wrong = "write `wait` (the call returns when the store has confirmed the release) or \
                 `background` (it returns as soon as the release is sent)";
    one_of(choices, wrong, input).map(|variant| SettingValue::Variant("Release", variant))
}

pub(crate) fn mode(input: ParseStream<'_>) -> Result<SettingValue> {
    let choices = [("exclusive", "Exclusive"), ("read", "Read"), ("write", "Write")];
    let wrong = "write `read` (any number of readers at once, and no writer) or `write` (alone, \
                 as `exclusive`, the default)";
    one_of(choices, wrong, input).map(|variant| SettingValue::Variant("LockMode", variant))
}

pub(crate) fn permits(input: ParseStream<'_>) -> Result<SettingValue> {
    let number = expr(input)?;
    let wrong = |message: &str| Err(Error::new_spanned(&number, message));
    match &number {
        Expr::Lit(ExprLit { lit: Lit::Int(digits), .. }) => match digits.base10_parse::<u64>() {
            Ok(0) => wrong(
                "with no permits no call would ever be let in: write at least `permits = 1`, which is an \
                 exclusive lock",
            ),
            // rustc reports a number that is too large for its type.
            _ => Ok(SettingValue::Number(number)),
        },
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value().parse::<u32>().is_ok() => {
            Err(without_quotes(text))
        }
        Expr::Lit(_) | Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), .. }) => {
            wrong("write how many may hold the lock at once: `permits = 5`")
        }
        Expr::Path(_) if is_none(&number) => wrong("without `permits`, leave the option out"),
        _ => Ok(SettingValue::Number(number)),
    }
}

/// Parses one of these words, and returns the variant that it stands for.
fn one_of<const N: usize>(
    choices: [(&str, &'static str); N],
    wrong: &str,
    input: ParseStream<'_>,
) -> Result<&'static str> {
    let meant = |text: &str| choices.iter().find(|(word, _)| *word == text);
    if input.peek(Ident::peek_any) {
        let word = input.call(Ident::parse_any)?;
        let (_, meant) = meant(&word.to_string()).ok_or_else(|| Error::new(word.span(), wrong))?;
        return Ok(meant);
    }
    match &expr(input)? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if meant(&text.value()).is_some() => {
            Err(without_quotes(text))
        }
        other => Err(Error::new_spanned(other, wrong)),
    }
}

pub(crate) fn name(input: ParseStream<'_>) -> Result<LitStr> {
    match expr(input)? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if !text.value().trim().is_empty() => {
            Ok(text)
        }
        other => Err(Error::new_spanned(
            other,
            "a name is a text in quotes that stands in errors and events: `name = \"pay\"`",
        )),
    }
}

pub(crate) fn prefix(input: ParseStream<'_>) -> Result<Expr> {
    let value = expr(input)?;
    if is_path(&value, "none") {
        return Ok(parse_quote_spanned!(span_of(&value)=> ""));
    }
    if is_path(&value, "None") {
        return Err(Error::new_spanned(value, "for no prefix write `prefix = none`"));
    }
    let Expr::Lit(ExprLit { lit, .. }) = &value else {
        return Ok(value);
    };
    let wrong = |message: &str| Err(Error::new(lit.span(), message));
    let text = match lit {
        Lit::Str(text) => text,
        _ => return wrong("a prefix is a text in quotes: `prefix = \"shop\"`"),
    };
    match text.value().as_str() {
        "none" => Err(without_quotes(text)),
        "" => wrong("for no prefix write `prefix = none`"),
        prefix if prefix.contains(['{', '}']) || prefix.contains(char::is_control) => wrong(
            "a prefix must not contain braces or control characters: arguments belong into the key, \
             or write an expression, `prefix = self.tenant`",
        ),
        prefix if prefix.ends_with(':') => {
            wrong("the `:` behind the prefix is added: write it without the `:`")
        }
        prefix if format!(":{prefix}:").contains(":lock::") => wrong(
            "a prefix must not contain `lock` with an empty part behind it: its locks could be \
             mistaken for those of a shorter prefix",
        ),
        _ => Ok(value),
    }
}

pub(crate) fn when(input: ParseStream<'_>) -> Result<Expr> {
    match expr(input)? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Err(without_quotes(&text)),
        other => Ok(other),
    }
}

pub(crate) fn manager(input: ParseStream<'_>) -> Result<Expr> {
    expr(input)
}

pub(crate) fn guard(input: ParseStream<'_>) -> Result<Ident> {
    if input.peek(Token![mut]) || input.peek(Token![&]) || input.peek(Token![ref]) {
        return Err(
            input.error("write the guard's name alone, as in `guard = lock`: it is a `&LockGuard`")
        );
    }
    if input.peek(Ident) && !input.peek2(Token![::]) && !input.peek2(Token![.]) {
        return input.parse();
    }
    match expr(input)? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. })
            if syn::parse_str::<Ident>(&text.value()).is_ok() =>
        {
            Err(without_quotes(&text))
        }
        other => Err(Error::new_spanned(
            other,
            "write the name that the guard is to have in the body: `guard = lock`",
        )),
    }
}

pub(crate) fn on_fail(input: ParseStream<'_>) -> Result<OnFailValue> {
    let value = expr(input)?;
    if let Expr::Path(path) = &value
        && let Some(name) = path.path.get_ident().filter(|name| *name == "skip")
    {
        return Ok(OnFailValue::Skip(name.clone()));
    }
    if is_path(&value, "Skip") {
        return Err(Error::new_spanned(value, "write `skip`, in lower case"));
    }
    function("on_fail", "the value to return", value).map(OnFailValue::Function)
}

pub(crate) fn map_err(input: ParseStream<'_>) -> Result<Expr> {
    function("map_err", "the error to return", expr(input)?)
}

/// Checks that the expression can be a closure or the name of a function. rustc's own error would mention `FnOnce`.
fn function(name: &str, value: &str, expr: Expr) -> Result<Expr> {
    match &expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value() == "skip" => {
            Err(without_quotes(text))
        }
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. })
            if syn::parse_str::<Path>(&text.value()).is_ok() =>
        {
            let message = format!(
                "write `{}`, without quotes, for a function, or `|_| {}` for the text",
                text.value(),
                text.token(),
            );
            Err(Error::new(text.span(), message))
        }
        Expr::Closure(closure) if closure.asyncness.is_some() => Err(Error::new_spanned(
            expr,
            format!("`{name}` is not awaited: write a closure without `async`"),
        )),
        Expr::Closure(closure) if closure.inputs.len() != 1 => {
            let message = format!("the closure takes the `LockError`: write `{name} = |error| …`");
            Err(Error::new_spanned(&expr, message))
        }
        _ if is_value(&expr) => Err(Error::new_spanned(
            &expr,
            format!(
                "`{name}` takes a function of the `LockError`: write `{name} = |_| {value}`",
                value = if name == "on_fail" { text_of(&expr) } else { value.to_owned() },
            ),
        )),
        _ => Ok(expr),
    }
}

fn is_value(expr: &Expr) -> bool {
    let is_variant =
        |path: &Expr| ["Ok", "Err", "Some", "None"].iter().any(|name| is_path(path, name));
    match expr {
        Expr::Lit(_) | Expr::Tuple(_) | Expr::Array(_) | Expr::Struct(_) | Expr::Unary(_) => true,
        Expr::Call(call) => is_variant(&call.func),
        Expr::Return(_) => true,
        Expr::Macro(call) => ["vec", "format", "panic", "todo", "unreachable", "unimplemented"]
            .iter()
            .any(|name| call.mac.path.is_ident(name)),
        Expr::Path(_) => is_path(expr, "None"),
        _ => false,
    }
}

/// Formats the user's tokens for a message.
pub(crate) fn text_of(expr: &Expr) -> String {
    let text = expr.to_token_stream().to_string().replace(" ! ", "!").replace(" [", "[");
    text.replace(" (", "(").replace("( ", "(").replace(" )", ")").replace(" . ", ".")
}

/// Parses the path of this library, as seen from the function: all generated code stands there.
pub(crate) fn crate_path(input: ParseStream<'_>) -> Result<Path> {
    if input.peek(LitStr) {
        let text: LitStr = input.parse()?;
        let message = format!("write the path without quotes: `crate = {}`", text.value());
        return Err(Error::new(text.span(), message));
    }
    input.call(Path::parse_mod_style)
}

pub(crate) fn expr(input: ParseStream<'_>) -> Result<Expr> {
    input.parse().map(ungroup)
}

/// Removes invisible groups, in which fragments arrive from `macro_rules!`, and parentheses, which would be superfluous
/// in the generated code.
pub(crate) fn ungroup(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => ungroup(*group.expr),
        Expr::Paren(paren) => ungroup(*paren.expr),
        other => other,
    }
}

/// Whether the expression is `none` or `None`.
fn is_none(expr: &Expr) -> bool {
    is_path(expr, "none") || is_path(expr, "None")
}

pub(crate) fn is_path(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Path(path) if path.path.is_ident(name))
}

fn span_of(expr: &Expr) -> proc_macro2::Span {
    syn::spanned::Spanned::span(expr)
}

fn without_quotes(text: &LitStr) -> Error {
    Error::new(text.span(), format!("write `{}`, without quotes", text.value()))
}
