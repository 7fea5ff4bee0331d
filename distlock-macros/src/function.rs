//! The annotated function: its signature understood, its body opaque.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{
    Attribute, Error, FnArg, Ident, Pat, Result, ReturnType, Signature, Token, Type, Visibility,
};

use crate::errors::Errors;
use crate::future::{self, Shape};
use crate::pattern::bound_names;

pub(crate) struct Function {
    /// Attributes, visibility and signature, token by token as written: nothing of the user's is
    /// lost or moved.
    pub(crate) head: TokenStream,
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) sig: Signature,
    /// `#![…]` at the start of the body, which must stay at the start of the function.
    pub(crate) inner_attrs: Vec<Attribute>,
    /// The body without its braces, not parsed: half-typed code still expands.
    pub(crate) body: TokenStream,
    /// The body's braces. Kept for the function, or rustc no longer reports it as unused.
    pub(crate) brace: Span,
    pub(crate) shape: Shape,
}

impl Function {
    pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Self> {
        let item = flatten(item);
        let (head, body) = split_body(item);
        let parsed = parse_head.parse2(head.clone());
        let (attrs, sig) = errors.take(parsed)?;
        let Some(body) = body else {
            errors.push(Error::new(
                sig.ident.span(),
                format!(
                    "`{}` has no body to run under the lock: put `#[redis_lock]` on the function \
                     that has one",
                    sig.ident
                ),
            ));
            return None;
        };
        let (inner_attrs, tokens) = errors.take(split_inner_attrs.parse2(body.stream()))?;
        let shape = Shape::of(&sig, &tokens);
        Some(Self { head, attrs, sig, inner_attrs, body: tokens, brace: body.span(), shape })
    }

    /// Every name the signature binds as a value; `self` is not among them.
    pub(crate) fn bindings(&self) -> Vec<Ident> {
        let mut names = self.shape.frame().map_or(Vec::new(), |frame| frame.bindings.clone());
        for input in &self.sig.inputs {
            if let FnArg::Typed(argument) = input {
                bound_names(&argument.pat, &mut names);
            }
        }
        names
    }

    /// The names of arguments whose type is a type parameter, or a reference to one. The parameters of
    /// an `impl` block cannot be seen from here, and are known by their capitals.
    pub(crate) fn parameters(&self) -> Vec<String> {
        let own: Vec<&Ident> = self.sig.generics.type_params().map(|param| &param.ident).collect();
        let is_parameter = |ty: &Type| match behind_references(ty) {
            Type::ImplTrait(_) => true,
            Type::Path(path) => path.path.get_ident().is_some_and(|name| {
                own.contains(&name) || !name.to_string().contains(char::is_lowercase)
            }),
            _ => false,
        };
        let typed = self.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(argument) if is_parameter(&argument.ty) => Some(&*argument.pat),
            _ => None,
        });
        let names = typed.filter_map(|pattern| match pattern {
            Pat::Ident(pattern) => Some(pattern.ident.unraw().to_string()),
            _ => None,
        });
        names.collect()
    }

    /// What the call comes to: of a function that returns a future, what that comes to. `None` where
    /// nothing is written.
    pub(crate) fn output(&self) -> Option<&Type> {
        match (&self.shape, &self.sig.output) {
            (Shape::Future { output, .. } | Shape::AsyncTrait { output, .. }, _) => Some(output),
            (_, ReturnType::Type(_, ty)) => Some(ty),
            (_, ReturnType::Default) => None,
        }
    }

    /// The receiver, with its own span: `self` written elsewhere may not be in its scope. After
    /// `#[async_trait]` it has another name.
    pub(crate) fn receiver(&self) -> Option<Ident> {
        if let Some(frame) = self.shape.frame() {
            return frame.receiver.clone();
        }
        self.sig.receiver().map(|receiver| Ident::new("self", receiver.self_token.span))
    }

    /// It would be right if it were `async`.
    pub(crate) fn only_async_is_missing(&self) -> bool {
        matches!(self.shape, Shape::Sync)
            && self.sig.constness.is_none()
            && self.sig.abi.is_none()
            && self.why_not_locked() == NOT_ASYNC
    }

    /// What to say of one that is not `async` and returns no future.
    pub(crate) fn why_not_locked(&self) -> &'static str {
        let is_test = |attr: &Attribute| {
            attr.path().segments.last().is_some_and(|segment| segment.ident == "test")
        };
        // What `#[tokio::main]` and `#[tokio::test]` leave of an `async fn`.
        if self.sig.ident == "main"
            || self.attrs.iter().any(is_test)
            || mentions(self.body.clone(), "block_on")
        {
            return "this function is no longer `async`: `#[tokio::main]`, `#[tokio::test]` and their \
                    like take that away from what stands below them; put `#[redis_lock]` above them";
        }
        if future::is_about_futures(&self.sig) {
            return "what the future comes to is not to be seen here: return \
                    `impl Future<Output = …>`, `BoxFuture<…>` or `Pin<Box<dyn Future<Output = …>>>`, or make \
                    it an `async fn`";
        }
        NOT_ASYNC
    }
}

const NOT_ASYNC: &str = "a lock is awaited, so the function must be `async`: write `async fn`; or add `blocking`, which \
                         blocks the caller's thread, and accepts that the body runs on when the lock is lost";

fn behind_references(ty: &Type) -> &Type {
    match ty {
        Type::Reference(reference) => behind_references(&reference.elem),
        Type::Paren(inner) => behind_references(&inner.elem),
        Type::Group(inner) => behind_references(&inner.elem),
        ty => ty,
    }
}

/// The item without the `#[redis_lock]`s that still stand on it.
pub(crate) fn without_locks(item: TokenStream) -> TokenStream {
    let parser = |input: ParseStream<'_>| {
        let attrs = input.call(Attribute::parse_outer)?;
        let rest: TokenStream = input.parse()?;
        let attrs = attrs.iter().filter(|attr| !is_lock(attr));
        Ok(attrs.map(ToTokens::to_token_stream).chain([rest]).collect())
    };
    parser.parse2(item.clone()).unwrap_or(item)
}

/// `#[redis_lock]` or `#[distlock::redis_lock]`.
pub(crate) fn is_lock(attr: &Attribute) -> bool {
    attr.path().segments.last().is_some_and(|segment| segment.ident == "redis_lock")
}

/// An item that went through `macro_rules!` arrives in an invisible group.
fn flatten(item: TokenStream) -> TokenStream {
    let mut tokens = item.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => {
            flatten(group.stream())
        }
        _ => item,
    }
}

fn split_body(item: TokenStream) -> (TokenStream, Option<Group>) {
    let mut head: Vec<TokenTree> = item.into_iter().collect();
    let body = head.pop().and_then(|last| match last {
        TokenTree::Group(group) => braces(group),
        _ => None,
    });
    (head.into_iter().collect(), body)
}

/// The braces themselves, also if a `$body:block` put an invisible group around them.
fn braces(group: Group) -> Option<Group> {
    match group.delimiter() {
        Delimiter::Brace => Some(group),
        Delimiter::None => match group.stream().into_iter().next() {
            Some(TokenTree::Group(inner)) => braces(inner),
            _ => None,
        },
        _ => None,
    }
}

fn parse_head(input: ParseStream<'_>) -> Result<(Vec<Attribute>, Signature)> {
    let attrs = input.call(Attribute::parse_outer)?;
    input.parse::<Visibility>()?;
    // Specialisation's `default`, which is an ordinary name elsewhere.
    if input.peek(Token![default]) {
        input.parse::<Token![default]>()?;
    }
    if let Some(other) = other_item(input) {
        let message = format!(
            "`#[redis_lock]` goes on an `async fn`, not on {other}: put it on each function that \
             needs the lock"
        );
        return Err(input.error(message));
    }
    Ok((attrs, input.parse()?))
}

fn other_item(input: ParseStream<'_>) -> Option<&'static str> {
    if input.peek(Token![struct]) || input.peek(Token![enum]) || input.peek(Token![union]) {
        Some("a type")
    } else if input.peek(Token![impl]) || input.peek(Token![unsafe]) && input.peek2(Token![impl]) {
        Some("an `impl` block")
    } else if input.peek(Token![trait]) || input.peek2(Token![trait]) {
        Some("a trait")
    } else if input.peek(Token![mod]) {
        Some("a module")
    } else if input.fork().parse::<TokenStream>().is_ok_and(|rest| !mentions(rest, "fn")) {
        Some("this item")
    } else {
        None
    }
}

/// Whether a name or keyword occurs in the tokens, at any depth.
pub(crate) fn mentions(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => mentions(group.stream(), word),
        _ => false,
    })
}

/// Whether a value's name occurs, also as `{name}` in a text.
pub(crate) fn mentions_value(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident.unraw() == name,
        TokenTree::Group(group) => mentions_value(group.stream(), name),
        TokenTree::Literal(literal) => {
            let text = literal.to_string();
            text.match_indices(name).any(|(at, _)| {
                let (before, after) = (&text[..at], &text[at + name.len()..]);
                before.ends_with('{') && after.starts_with([':', '}'])
            })
        }
        TokenTree::Punct(_) => false,
    })
}

fn split_inner_attrs(input: ParseStream<'_>) -> Result<(Vec<Attribute>, TokenStream)> {
    Ok((input.call(Attribute::parse_inner)?, input.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(item: &str) -> std::result::Result<Function, String> {
        let mut errors = Errors::default();
        let function = Function::parse(item.parse().expect(item), &mut errors);
        function.ok_or_else(|| errors.messages().join("\n"))
    }

    #[test]
    fn the_head_stays_as_it_was() {
        let head = "#[doc = \"x\"] #[inline] pub(crate) async unsafe fn f<'a, T: Copy>(&'a mut self, t: T) \
                    -> Result<T, E> where T: Send";
        let function = parse(&format!("{head} {{ #![allow(unused)] let half = ; }}")).expect(head);
        assert_eq!(function.head.to_string(), head.parse::<TokenStream>().expect(head).to_string());
        assert_eq!(function.inner_attrs.len(), 1);
        assert_eq!(function.body.to_string(), "let half = ;");
        assert!(function.receiver().is_some());
    }

    #[test]
    fn finds_what_patterns_bind() {
        let function = parse(
            "async fn f(self, Path(id): Path<u64>, (a, mut b): (u8, u8), Order { x, y: [c, .., d], .. }: \
             Order, &e: &u8, g @ h: u8, _: u8, r#type: u8) {}",
        );
        let names: Vec<String> =
            function.expect("a function").bindings().iter().map(Ident::to_string).collect();
        assert_eq!(names, ["id", "a", "b", "x", "c", "d", "e", "g", "h", "r#type"]);
    }

    #[test]
    fn other_items_are_named() {
        for (item, words) in [
            ("struct A { x: u8 }", "not on a type"),
            ("pub enum A {}", "not on a type"),
            ("impl A { fn f() {} }", "not on an `impl` block"),
            ("pub unsafe trait A { fn f(); }", "not on a trait"),
            ("mod a { fn f() {} }", "not on a module"),
            ("const A: u8 = 5;", "not on this item"),
            ("async fn f();", "`f` has no body"),
        ] {
            let message = parse(item).err().unwrap_or_else(|| panic!("{item} was accepted"));
            assert!(message.contains(words), "{item}: {message}");
        }
    }

    #[test]
    fn other_locks_are_taken_off_and_nothing_else() {
        let item = "#[a] #[distlock::redis_lock(key = \"k\")] #[b] async fn f() {}";
        let left = without_locks(item.parse().expect(item)).to_string();
        assert_eq!(
            left,
            "# [a] # [b] async fn f () { }"
                .replace("# ", "#")
                .parse::<TokenStream>()
                .expect("tokens")
                .to_string()
        );
    }
}
