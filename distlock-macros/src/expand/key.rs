//! Keys: templates become calls of `format_args!` with encoded values.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Expr, LitStr};

use super::tokens::{ends, ident, member};
use crate::function::Function;
use crate::keys::KeySource;
use crate::names::{UNKNOWN_NAME_HINT, VisibleNames};
use crate::template::{KeyTemplate, Placeholder, TemplatePiece, TemplateValues};

/// The names of a template that are values to be encoded, and the way to reach them.
pub(super) enum NameScope<'a> {
    /// The attribute: the names that the signature binds. Other names are constants, statics and const generics, which
    /// are not encoded.
    Signature { function: &'a Function, names: Vec<Ident>, receiver: Option<Ident> },
    /// `key!`, which sees no signature: all names that are not written like a constant. They are resolved where the
    /// text was written, which may be outside of the macro that calls `key!`.
    Anywhere { literal: Span },
}

impl NameScope<'_> {
    /// Returns the name for generated code at `span`, if the name is a value.
    fn value(&self, name: &str, span: Span) -> Option<Ident> {
        match self {
            Self::Anywhere { literal } => {
                let constant =
                    !name.contains(char::is_lowercase) && name.contains(char::is_uppercase);
                (!constant).then(|| ident(name, literal.located_at(span)))
            }
            // The hygiene of the binding lets a template from one macro find an argument from another.
            Self::Signature { receiver, .. } if name == "self" => Some(match receiver {
                Some(receiver) => {
                    let span = receiver.span().located_at(span);
                    Ident::new(&receiver.to_string(), span)
                }
                None => ident(name, span),
            }),
            Self::Signature { names, .. } => {
                let binding = names.iter().find(|binding| binding.unraw() == name)?;
                Some(ident(name, binding.span().located_at(span)))
            }
        }
    }

    /// Returns the runtime's method that wraps a value. For a type parameter it makes rustc ask for `Display`.
    fn wrap(&self, name: &str, span: Span) -> Ident {
        let is_parameter = matches!(self, Self::Signature { function, .. }
            if function.parameters().iter().any(|parameter| parameter == name));
        Ident::new(if is_parameter { "parameter" } else { "value" }, span)
    }

    /// Describes the mistake in a name that is no value. The signature must be known for that.
    fn mistake(&self, name: &str, values: &TemplateValues) -> Option<String> {
        match self {
            Self::Anywhere { .. } => None,
            Self::Signature { function, .. } => {
                VisibleNames { function, values: Some(values) }.mistake(name)
            }
        }
    }
}

/// Returns one key as an expression of type `LockKey`. `expr` adapts the user's expressions to this place.
pub(super) fn value(
    value: &KeySource,
    scope: &NameScope<'_>,
    private: &TokenStream,
    expr: impl Fn(&Expr) -> TokenStream,
) -> TokenStream {
    match value {
        KeySource::Template(template) => self::template(template, scope, private),
        KeySource::Call(template, arguments) => {
            call(template, &BoundValues { arguments, expr: &expr }, scope, private)
        }
        KeySource::Expr(user) => {
            let (first, last) = ends(user);
            let (user, key) = (expr(user), Ident::new("key", last));
            quote_spanned!(first=> #private::#key(#user))
        }
    }
}

fn template(template: &KeyTemplate, scope: &NameScope<'_>, private: &TokenStream) -> TokenStream {
    call(
        template,
        &BoundValues { arguments: &TemplateValues::default(), expr: &|_| quote!() },
        scope,
        private,
    )
}

/// The values of `key("…", …)`, and the function that adapts their expressions.
struct BoundValues<'a> {
    arguments: &'a TemplateValues,
    expr: &'a dyn Fn(&Expr) -> TokenStream,
}

impl BoundValues<'_> {
    fn are_given(&self) -> bool {
        !(self.arguments.positional.is_empty() && self.arguments.named.is_empty())
    }

    fn has(&self, name: &str) -> bool {
        self.arguments.get(name).is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Expr> {
        let named = self.arguments.named.iter().map(|(_, value)| value);
        self.arguments.positional.iter().chain(named)
    }

    /// Returns the arguments after the text: `, __text.value(__value0, 0), name = __text.value(__value1, 0)`.
    fn tokens(&self, template: &KeyTemplate, scope: &NameScope<'_>) -> TokenStream {
        let mut tokens = TokenStream::new();
        for (number, value) in self.all().enumerate() {
            let (first, last) = ends(value);
            let local = local(number, last);
            let mut argument = Group::new(Delimiter::Parenthesis, quote!(#local, 0));
            argument.set_span(last);
            let name = match value {
                Expr::Path(path) => path.path.get_ident().map(|name| name.unraw().to_string()),
                _ => None,
            };
            let wrap = scope.wrap(name.as_deref().unwrap_or_default(), first);
            let part = quote_spanned!(first=> __text.#wrap #argument);
            let name = number.checked_sub(self.arguments.positional.len());
            tokens.extend(match name.map(|at| &self.arguments.named[at].0) {
                None => quote!(, #part),
                Some(name) if template.prints(&name.unraw().to_string()) => quote!(, #name = #part),
                // A width or a precision is a number.
                Some(name) => quote!(, #name = *#local),
            });
        }
        tokens
    }

    /// Wraps `code` so that the values are in locals. Their expressions may await, and see only the user's names.
    fn bound_in(&self, code: TokenStream) -> TokenStream {
        if !self.are_given() {
            return code;
        }
        let values = self.all().map(|value| (self.expr)(value));
        let locals = self.all().enumerate().map(|(number, value)| local(number, ends(value).1));
        quote_spanned! {Span::mixed_site()=>
            match (#(&(#values),)*) {
                (#(#locals,)*) => #code
            }
        }
    }
}

fn local(number: usize, span: Span) -> Ident {
    Ident::new(&format!("__value{number}"), Span::mixed_site().located_at(span))
}

/// Formats the key. If every placeholder is a plain name, rustc gets the user's own text, and a wrapper that encodes
/// shadows each value's name. Then the carets of errors point into the text.
fn call(
    template: &KeyTemplate,
    values: &BoundValues<'_>,
    scope: &NameScope<'_>,
    private: &TokenStream,
) -> TokenStream {
    let site = Span::mixed_site();
    let literal = &template.literal;
    let is_bound = |name: &str| !values.has(name) && scope.value(name, site).is_some();
    let is_value = |name: &str| values.has(name) || is_bound(name);
    let plain = |placeholder: &Placeholder| {
        placeholder.fields.is_empty()
            && placeholder.base != "self"
            && !placeholder.counts.iter().any(|count| is_bound(count) && template.prints(count))
    };
    let (wrappers, arguments) = if template.placeholders().all(plain) {
        let mut wrappers = shadows(template, is_bound, scope);
        wrappers.extend(mistakes(template, values, scope));
        let values = values.tokens(template, scope);
        (wrappers, quote!(#literal #values))
    } else {
        (Vec::new(), rewritten(template, values, scope))
    };
    let encoded = template.placeholders().zip(template.separators());
    let separators = encoded
        .filter(|(placeholder, _)| !placeholder.fields.is_empty() || is_value(&placeholder.base))
        .map(|(_, separator)| match separator {
            Some(c) => quote!(::core::option::Option::Some(#c)),
            None => quote!(::core::option::Option::None),
        });
    // A copy of the template's text, so that an invalid suffix of the literal is reported only once.
    let text = LitStr::new(&literal.value(), site);
    values.bound_in(quote_spanned! {site=>
        {
            let __text = &#private::KeyText::new(&[#(#separators),*]);
            #(#wrappers)*
            __text.key(#text, ::core::format_args!(#arguments))
        }
    })
}

fn shadows(
    template: &KeyTemplate,
    is_bound: impl Fn(&str) -> bool,
    scope: &NameScope<'_>,
) -> Vec<TokenStream> {
    let literal = template.literal.span();
    let shadow = |name: &str| {
        let value = scope.value(name, template.generated_span())?;
        let wrapper = ident(name, literal);
        let wrap = scope.wrap(name, Span::mixed_site());
        // The wrapper has the literal's hygiene, so lints take it for the user's own name. `allow` as few lints as
        // possible, because a crate that forbids a lint must not contain an `allow` of it.
        let style = name.contains(char::is_uppercase).then(|| quote!(non_snake_case,));
        Some(quote_spanned! {Span::mixed_site()=>
            #[allow(#style clippy::shadow_reuse)]
            let #wrapper = __text.#wrap(&#value, 0);
        })
    };
    template.bases().into_iter().filter(|name| is_bound(name)).filter_map(shadow).collect()
}

/// Declares unknown names as values that cannot be printed, so that rustc reports each with its caret in the text.
/// For undeclared names rustc would suggest whatever is spelled alike, even a built-in attribute.
fn mistakes(
    template: &KeyTemplate,
    values: &BoundValues<'_>,
    scope: &NameScope<'_>,
) -> Vec<TokenStream> {
    let site = Span::mixed_site();
    let formats = ["Display", "LowerHex", "UpperHex", "Octal", "Binary", "LowerExp", "UpperExp"];
    let formats = formats.map(|format| Ident::new(format, site));
    let shadow = |name: &str| {
        let message = scope.mistake(name, values.arguments)?;
        let wrapper = ident(name, template.literal.span());
        Some(quote_spanned! {site=>
            let #wrapper = {
                #[diagnostic::on_unimplemented(
                    message = #message,
                    label = "not an argument",
                    note = #UNKNOWN_NAME_HINT,
                )]
                trait __Argument {}
                struct __Unknown<T>(T);
                // Without an implementation rustc would suggest adding one.
                #[diagnostic::do_not_recommend]
                impl __Argument for __Unknown<()> {}
                #(
                    impl<T: __Argument> ::core::fmt::#formats for __Unknown<T> {
                        fn fmt(&self, _: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                            ::core::result::Result::Ok(())
                        }
                    }
                )*
                __Unknown(())
            };
        })
    };
    template.bases().into_iter().filter_map(shadow).collect()
}

/// Rewrites fields, which `format_args!` does not support: `"{order.id:05}"` becomes
/// `"{__0:05}", __0 = __text.value(&order.id, 0)`.
fn rewritten(
    template: &KeyTemplate,
    values: &BoundValues<'_>,
    scope: &NameScope<'_>,
) -> TokenStream {
    let span = template.generated_span();
    let mut text = String::new();
    let mut arguments = TokenStream::new();
    for (i, piece) in template.pieces.iter().enumerate() {
        let placeholder = match piece {
            TemplatePiece::Text(literal) => {
                text.push_str(&literal.replace('{', "{{").replace('}', "}}"));
                continue;
            }
            TemplatePiece::Placeholder(placeholder) => placeholder,
        };
        let Placeholder { base, fields, spec, .. } = placeholder;
        if values.has(base) && fields.is_empty() {
            text.push_str(&format!("{{{base}{spec}}}"));
            continue;
        }
        let value = match scope.value(base, span) {
            None if fields.is_empty() => {
                text.push_str(&format!("{{{base}{spec}}}"));
                continue;
            }
            value => value.unwrap_or_else(|| ident(base, span)),
        };
        let argument = Ident::new(&format!("__{i}"), span);
        let fields = fields.iter().map(|field| member(field, span));
        text.push_str(&format!("{{{argument}{spec}}}"));
        let site = Span::mixed_site().located_at(span);
        let part = if fields.len() == 0 {
            let wrap = scope.wrap(base, site);
            quote_spanned!(site=> __text.#wrap(&#value, 0))
        } else {
            quote_spanned!(site=> __text.value(&#value #(.#fields)*, 0))
        };
        arguments.extend(quote!(, #argument = #part));
    }
    let text = LitStr::new(&text, span);
    let values = values.tokens(template, scope);
    quote!(#text #values #arguments)
}
