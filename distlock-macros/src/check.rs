//! Checks options against the function: every rule that needs both, or several options.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Type};

use crate::foreign_placeholders::{self, ForeignPlaceholder};
use crate::function::Shape;
use crate::function::{Function, is_lock};
use crate::keys::{KeySource, KeySources};
use crate::names::VisibleNames;
use crate::options::AttributeOptions;
use crate::return_type;
use crate::syntax::Errors;
use crate::template::TemplatePiece;
use crate::template::{KeyTemplate, TemplateValues};
use crate::value::OnFailValue;

/// The lock to expand, if the attribute has no mistakes.
pub(crate) struct CheckedLock {
    pub(crate) keys: KeySources,
    /// All options but `key` and `keys`.
    pub(crate) options: AttributeOptions,
}

pub(crate) fn check(
    mut options: AttributeOptions,
    function: Option<&Function>,
    errors: &mut Errors,
) -> Option<CheckedLock> {
    if options.given("key").is_none() && options.given("keys").is_none() {
        errors.push(missing_key(function));
    }
    report_contradictions(&options, errors);
    let keys = options.key.take().map(|key| KeySources::Array(vec![key])).or(options.keys.take());
    if let Some(function) = function {
        if let Some(error) = wrong_place(function, &options) {
            errors.push(error);
        } else if let Some(error) = wrong_return(function, &options) {
            errors.push(error);
        }
        if let Some(guard) = &options.guard {
            errors.extend(wrong_guard(guard, function));
        }
        let templates = || keys.iter().flat_map(templates);
        for (template, _) in templates().filter(|(_, values)| values.is_none()) {
            report_foreign_placeholders(template, function, errors);
        }
        if let Some(KeySources::Array(keys)) = &keys {
            keys.iter().for_each(|key| template_in_expression(key, function, errors));
        }
        // If there are no other mistakes, and the text is not rewritten, the expansion shows an unknown name inside
        // of the text (see `expand::key`).
        for (template, values) in templates() {
            if !(errors.is_empty() && template.is_plain()) {
                errors.extend(VisibleNames { function, values }.mistakes(template));
            }
        }
    }
    Some(CheckedLock { keys: keys?, options })
}

/// Reports options that contradict each other, each at one of them.
fn report_contradictions(options: &AttributeOptions, errors: &mut Errors) {
    let mut report = |at: Span, message: &str| errors.push(Error::new(at, message));
    if let (Some(_), Some(keys)) = (options.given("key"), options.given("keys")) {
        report(keys.span(), "`key` and `keys` are both given: put all of them in `keys = […]`");
    }
    if let (Some(_), Some(guard)) = (&options.when, options.given("guard")) {
        report(
            guard.span(),
            "`guard` and `when` cannot be combined: without a lock there is no guard",
        );
    }
    if let Some(permits) = options.given("permits") {
        if options.given("mode").is_some() {
            report(
                permits.span(),
                "`permits` and `mode` cannot be combined: `permits` alone says how many may hold the \
                 lock at once, `mode = read` lets any number of readers in",
            );
        }
        if options.given("keys").is_some() {
            report(
                permits.span(),
                "`permits` goes with one lock: calls that hold a permit of one while they wait for \
                 another could use up both; write `key = \"…\"`, and lock the others in functions of \
                 their own",
            );
        }
    }
    if let (Some(OnFailValue::Function(_)), Some(map_err)) =
        (&options.on_fail, options.given("map_err"))
    {
        report(
            map_err.span(),
            "`on_fail` already decides about every error: remove `map_err`, or write \
             `on_fail = skip`",
        );
    }
    if let (Some((max, _)), Some((min, at))) =
        (options.literal("max_hold"), options.literal("min_hold"))
        && min > max
    {
        report(
            at,
            "`min_hold` is longer than `max_hold`: the lock would be lost before it is free",
        );
    }
}

fn templates(keys: &KeySources) -> impl Iterator<Item = (&KeyTemplate, Option<&TemplateValues>)> {
    let keys = match keys {
        KeySources::Array(keys) => keys.as_slice(),
        KeySources::Expr(_) => &[],
    };
    keys.iter().filter_map(|key| match key {
        KeySource::Template(template) => Some((template, None)),
        KeySource::Call(template, values) => Some((template, Some(values))),
        KeySource::Expr(_) => None,
    })
}

fn wrong_guard(guard: &Ident, function: &Function) -> Option<Error> {
    let name = guard.unraw().to_string();
    if matches!(function.shape, Shape::Future { .. }) {
        let message = format!(
            "`{name}` cannot be bound in code that has run before the lock is taken: make it an \
             `async fn`"
        );
        return Some(Error::new(guard.span(), message));
    }
    let is_argument = function.bindings().iter().any(|argument| argument.unraw() == name.as_str());
    is_argument.then(|| {
        let message = format!("`{name}` would hide the argument `{name}`: choose another name");
        Error::new(guard.span(), message)
    })
}

/// Reports a missing key, with an example made from the arguments and not from the function's name, because `pay` and `cancel` should
/// exclude each other.
fn missing_key(function: Option<&Function>) -> Error {
    let names = function.map(Function::bindings).unwrap_or_default();
    let names = names.iter().map(|name| name.unraw().to_string());
    let names: Vec<_> = names.filter(|name| !name.starts_with('_')).collect();
    let is_id = |name: &&String| *name == "id" || name.ends_with("_id");
    let example = match (names.iter().find(is_id).or(names.first()), function) {
        (Some(name), _) => {
            let noun = name.strip_suffix("_id").unwrap_or(name);
            let noun = if noun == "id" { "order" } else { noun };
            format!("{noun}:{{{name}}}")
        }
        (None, Some(function)) if function.receiver().is_some() => "order:{self.id}".to_owned(),
        (None, Some(_)) => "nightly-report".to_owned(),
        (None, None) => "order:{order_id}".to_owned(),
    };
    Error::new(
        Span::call_site(),
        format!("`key` is missing: say what to lock, for example `key = \"{example}\"`"),
    )
}

fn wrong_place(function: &Function, options: &AttributeOptions) -> Option<Error> {
    let sig = &function.sig;
    if function.attrs.iter().any(is_lock) {
        let second = function.attrs.iter().find(|attr| is_lock(attr));
        return Some(Error::new_spanned(second, STACKED));
    }
    // If the attribute was imported under another name, the one below has been expanded already.
    if is_expanded(function.body.clone()) {
        return Some(Error::new(Span::call_site(), STACKED));
    }
    if let Some(constness) = &sig.constness {
        return Some(Error::new(
            constness.span,
            "a `const fn` runs while compiling, where there is nothing to lock: make it an `async fn`",
        ));
    }
    if let Some(abi) = &sig.abi {
        return Some(Error::new_spanned(
            abi,
            "a function with a foreign ABI is called by code that cannot await: put \
             `#[redis_lock]` on an `async fn` that it calls",
        ));
    }
    // An unreadable value counts as `true`, because that is a mistake of its own.
    let blocking = options.given("blocking").filter(|_| options.blocking != Some(false));
    match (&function.shape, blocking) {
        (Shape::Sync, None) => Some(Error::new(sig.fn_token.span, function.why_not_locked())),
        (Shape::Sync, Some(_)) | (_, None) => None,
        (_, Some(blocking)) => Some(Error::new(
            blocking.span(),
            "`blocking` is for functions that are not `async`: this one awaits its lock; remove it",
        )),
    }
}

const STACKED: &str = "two `#[redis_lock]` on one function would be taken one after the other and could \
                       deadlock: one attribute with `keys = [\"…\", \"…\"]` takes all or none";

/// Whether the attribute has expanded this body: its code has a label that nothing else uses.
fn is_expanded(body: TokenStream) -> bool {
    let mut quote = false;
    body.into_iter().any(|token| {
        let is_label = quote && matches!(&token, TokenTree::Ident(name) if name == "__failed");
        quote = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '\'');
        is_label || matches!(token, TokenTree::Group(group) if is_expanded(group.stream()))
    })
}

fn wrong_return(function: &Function, options: &AttributeOptions) -> Option<Error> {
    match function.output()? {
        Type::ImplTrait(ty) if options.on_fail.is_none() => {
            let error = match options.map_err {
                Some(_) => Some(return_type::UNKNOWN_TYPE.to_owned()),
                None => return_type::refusal(ty),
            };
            error.map(|message| Error::new_spanned(ty, message))
        }
        Type::Never(ty) => Some(Error::new_spanned(
            ty,
            "a function that never returns cannot say that the lock was not taken or was lost: \
             return `Result<std::convert::Infallible, E>`",
        )),
        _ => None,
    }
}

/// Reports `${id}`, `#id`, `%s` and a bare `id`. Other libraries would fill these in; here they are plain text,
/// and would lock the same key for all arguments. `key("…")` accepts such a text as it is.
fn report_foreign_placeholders(template: &KeyTemplate, function: &Function, errors: &mut Errors) {
    let names: Vec<String> =
        function.bindings().iter().map(|name| name.unraw().to_string()).collect();
    let names: Vec<String> = names.into_iter().filter(|name| !name.starts_with("__")).collect();
    let literal = &template.literal;
    let mut report = |wrong: &str, name: &str| {
        let message = format!(
            "`{wrong}` is plain text here: write `{{{name}}}` for the argument, or `key({})` to lock \
             this very text",
            literal.token(),
        );
        errors.push(Error::new(literal.span(), message));
    };
    for pair in template.pieces.windows(2) {
        if let [TemplatePiece::Text(text), TemplatePiece::Placeholder(placeholder)] = pair
            && text.ends_with('$')
            && names.contains(&placeholder.base)
        {
            let path = placeholder.path();
            report(&format!("${{{path}}}"), &path);
        }
    }
    let found: Vec<ForeignPlaceholder> = match &template.pieces[..] {
        [TemplatePiece::Text(text)] => {
            foreign_placeholders::find(text, &names, function.receiver().is_some())
        }
        pieces => {
            let texts = pieces.iter().filter_map(|piece| match piece {
                TemplatePiece::Text(text) => Some(text),
                TemplatePiece::Placeholder(_) => None,
            });
            texts
                .flat_map(|text| foreign_placeholders::find_beside_placeholders(text, &names))
                .collect()
        }
    };
    for mistake in found {
        report(&mistake.written, &mistake.meant);
    }
}

/// Reports `key = "order:{id}".to_string()`. An expression is not formatted, so it would lock the same key for all
/// arguments.
fn template_in_expression(key: &KeySource, function: &Function, errors: &mut Errors) {
    let KeySource::Expr(expr) = key else {
        return;
    };
    let names = function.bindings();
    let is_value = |base: &str| base == "self" || names.iter().any(|name| name.unraw() == base);
    let Some(template) = text_in(expr).and_then(|text| KeyTemplate::parse(text).ok()) else {
        return;
    };
    if let Some(placeholder) = template.placeholders().find(|one| is_value(&one.base)) {
        let (path, literal) = (placeholder.path(), &template.literal);
        let message = format!(
            "`{{{path}}}` is plain text in an expression: write the text alone, `{}`",
            literal.token(),
        );
        errors.push(Error::new(literal.span(), message));
    }
}

/// Returns the text in such an expression.
fn text_in(expr: &Expr) -> Option<LitStr> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
        Expr::Reference(reference) => text_in(&reference.expr),
        Expr::MethodCall(call) if call.args.is_empty() => text_in(&call.receiver),
        Expr::Call(call) => match (&*call.func, call.args.first()) {
            (Expr::Path(path), Some(text)) if call.args.len() == 1 => {
                let last = path.path.segments.last()?;
                (last.ident == "from" || last.ident == "Borrowed").then(|| text_in(text))?
            }
            _ => None,
        },
        _ => None,
    }
}
