//! The annotated function: its signature is parsed, its body is not.
//!
//! A function that is not `async` may return a future, and `#[async_trait]` turns an `async fn` into one that does.

use proc_macro2::{Delimiter, Group, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{
    AngleBracketedGenericArguments, Attribute, Block, Error, FnArg, GenericArgument, GenericParam,
    Pat, PathArguments, PathSegment, Result, ReturnType, Signature, Stmt, Token, Type,
    TypeParamBound, Visibility,
};

use crate::syntax::Errors;

pub(crate) struct Function {
    /// Attributes, visibility and signature, token by token as the user wrote them.
    pub(crate) head: TokenStream,
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) sig: Signature,
    /// The `#![…]` at the start of the body, which must stay at the start of the function.
    pub(crate) inner_attrs: Vec<Attribute>,
    /// The body without its braces. It is not parsed, so half-typed code still expands.
    pub(crate) body: TokenStream,
    /// The body's braces. The expansion reuses them, because otherwise rustc never reports the function as unused.
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

    /// Returns every name that the signature binds as a value, except `self`.
    pub(crate) fn bindings(&self) -> Vec<Ident> {
        let mut names = self.shape.frame().map_or(Vec::new(), |frame| frame.bindings.clone());
        for input in &self.sig.inputs {
            if let FnArg::Typed(argument) = input {
                bound_names(&argument.pat, &mut names);
            }
        }
        names
    }

    /// Returns the names of arguments whose type is a type parameter, or a reference to one. The parameters of an `impl`
    /// block cannot be seen from here, so a name in capitals counts as one.
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

    /// Returns the type that an awaited call has: the output of the future, if the function returns one. `None` without a
    /// return type.
    pub(crate) fn output(&self) -> Option<&Type> {
        match (&self.shape, &self.sig.output) {
            (Shape::Future { output, .. } | Shape::AsyncTrait { output, .. }, _) => Some(output),
            (_, ReturnType::Type(_, ty)) => Some(ty),
            (_, ReturnType::Default) => None,
        }
    }

    /// Returns the receiver with its own span, because a `self` from another place may not be in its scope. After
    /// `#[async_trait]` it has another name.
    pub(crate) fn receiver(&self) -> Option<Ident> {
        if let Some(frame) = self.shape.frame() {
            return frame.receiver.clone();
        }
        self.sig.receiver().map(|receiver| Ident::new("self", receiver.self_token.span))
    }

    /// Whether the function could be locked if it were `async`.
    pub(crate) fn only_async_is_missing(&self) -> bool {
        matches!(self.shape, Shape::Sync)
            && self.sig.constness.is_none()
            && self.sig.abi.is_none()
            && self.why_not_locked() == NOT_ASYNC
    }

    /// Explains why a function that is not `async` and returns no future cannot be locked.
    pub(crate) fn why_not_locked(&self) -> &'static str {
        let is_test = |attr: &Attribute| {
            attr.path().segments.last().is_some_and(|segment| segment.ident == "test")
        };
        // `#[tokio::main]` and `#[tokio::test]` turn an `async fn` into this.
        if self.sig.ident == "main"
            || self.attrs.iter().any(is_test)
            || mentions(self.body.clone(), "block_on")
        {
            return "this function is no longer `async`: `#[tokio::main]`, `#[tokio::test]` and their \
                    like take that away from what stands below them; put `#[redis_lock]` above them";
        }
        if is_about_futures(&self.sig) {
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

/// Removes every further `#[redis_lock]` from the item.
pub(crate) fn without_locks(item: TokenStream) -> TokenStream {
    let parser = |input: ParseStream<'_>| {
        let attrs = input.call(Attribute::parse_outer)?;
        let rest: TokenStream = input.parse()?;
        let attrs = attrs.iter().filter(|attr| !is_lock(attr));
        Ok(attrs.map(ToTokens::to_token_stream).chain([rest]).collect())
    };
    parser.parse2(item.clone()).unwrap_or(item)
}

/// Whether the attribute is `#[redis_lock]` or `#[distlock::redis_lock]`.
pub(crate) fn is_lock(attr: &Attribute) -> bool {
    attr.path().segments.last().is_some_and(|segment| segment.ident == "redis_lock")
}

/// Removes the invisible group in which an item arrives from `macro_rules!`.
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

/// Returns the braces themselves, even if a `$body:block` put an invisible group around them.
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
    // The `default` of specialization, which is an ordinary name elsewhere.
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

/// Whether the tokens use a value, also as `{name}` in a text.
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

/// Adds the names that `pat` binds, in the order of the text.
pub(crate) fn bound_names(pat: &Pat, names: &mut Vec<Ident>) {
    match pat {
        Pat::Ident(pat) => {
            names.push(pat.ident.clone());
            if let Some((_, inner)) = &pat.subpat {
                bound_names(inner, names);
            }
        }
        Pat::Struct(pat) => {
            // `Order { id }` too: its inner pattern is `id`.
            pat.fields.iter().for_each(|field| bound_names(&field.pat, names));
        }
        Pat::Tuple(pat) => pat.elems.iter().for_each(|pat| bound_names(pat, names)),
        Pat::TupleStruct(pat) => pat.elems.iter().for_each(|pat| bound_names(pat, names)),
        Pat::Slice(pat) => pat.elems.iter().for_each(|pat| bound_names(pat, names)),
        // Every alternative binds the same names.
        Pat::Or(pat) => pat.cases.iter().take(1).for_each(|pat| bound_names(pat, names)),
        Pat::Reference(pat) => bound_names(&pat.pat, names),
        Pat::Paren(pat) => bound_names(&pat.pat, names),
        Pat::Type(pat) => bound_names(&pat.pat, names),
        // Nothing else binds a name, or not one that syn could know.
        _ => {}
    }
}

/// The way in which a function makes its future.
pub(crate) enum Shape {
    /// An `async fn`.
    Async,
    /// Neither `async`, nor does it return a future.
    Sync,
    /// Returns `impl Future`, or a future pinned in a box.
    Future { output: Type, boxed: bool },
    /// An `async fn` of a trait, after `#[async_trait]`.
    AsyncTrait { output: Type, frame: Box<AsyncTraitFrame> },
}

/// The code that `#[async_trait]` generates: `Box::pin(async move { PRELUDE let __ret: R = { BODY }; __ret })`.
pub(crate) struct AsyncTraitFrame {
    /// `Box::pin`.
    pub(crate) pin: TokenStream,
    /// `async move`.
    pub(crate) asyncness: TokenStream,
    /// Renames `self` and destructures patterns. After it the arguments have their own names.
    pub(crate) prelude: TokenStream,
    pub(crate) body: Group,
    /// The name of `self` in the body.
    pub(crate) receiver: Option<Ident>,
    /// The names that the prelude binds.
    pub(crate) bindings: Vec<Ident>,
}

impl Shape {
    pub(crate) fn of(sig: &Signature, body: &TokenStream) -> Self {
        if sig.asyncness.is_some() {
            return Self::Async;
        }
        let ReturnType::Type(_, ty) = &sig.output else {
            return Self::Sync;
        };
        let Some((output, boxed)) = output(ty) else {
            return Self::Sync;
        };
        let is_made = |param: &GenericParam| match param {
            GenericParam::Lifetime(param) => param.lifetime.ident == "async_trait",
            _ => false,
        };
        match AsyncTraitFrame::of(body) {
            Some(frame) if sig.generics.params.iter().any(is_made) => {
                Self::AsyncTrait { output, frame: Box::new(frame) }
            }
            _ => Self::Future { output, boxed },
        }
    }

    pub(crate) fn frame(&self) -> Option<&AsyncTraitFrame> {
        match self {
            Self::AsyncTrait { frame, .. } => Some(frame),
            _ => None,
        }
    }
}

impl AsyncTraitFrame {
    fn of(body: &TokenStream) -> Option<Self> {
        let mut tokens: Vec<TokenTree> = body.clone().into_iter().collect();
        let arguments = group(tokens.pop()?, Delimiter::Parenthesis)?;
        let is_path = |token: &TokenTree| match token {
            TokenTree::Ident(_) => true,
            TokenTree::Punct(punct) => punct.as_char() == ':',
            _ => false,
        };
        if tokens.is_empty() || !tokens.iter().all(is_path) {
            return None;
        }
        let mut asyncness: Vec<TokenTree> = arguments.stream().into_iter().collect();
        let block = group(asyncness.pop()?, Delimiter::Brace)?;
        if !asyncness.iter().map(TokenTree::to_string).eq(["async", "move"]) {
            return None;
        }
        let (prelude, body) = split(block.stream())?;
        let statements = Block::parse_within.parse2(prelude.clone()).ok()?;
        let mut bindings = Vec::new();
        for statement in &statements {
            if let Stmt::Local(local) = statement {
                bound_names(&local.pat, &mut bindings);
            }
        }
        let receiver = bindings.iter().position(|name| name == "__self");
        let receiver = receiver.map(|at| bindings.remove(at));
        Some(Self {
            pin: tokens.into_iter().collect(),
            asyncness: asyncness.into_iter().collect(),
            prelude,
            body,
            receiver,
            bindings,
        })
    }
}

/// Returns the code before `let __ret: R = { BODY };`, and the body. For a function without a value it is
/// `let _: () = { BODY };`.
fn split(content: TokenStream) -> Option<(TokenStream, Group)> {
    let tokens: Vec<TokenTree> = content.into_iter().collect();
    let is_word = |token: Option<&TokenTree>, word: &str| {
        token.is_some_and(|token| token.to_string() == word)
    };
    let is_result = |at: &usize| {
        is_word(tokens.get(*at), "let")
            && (is_word(tokens.get(at + 1), "__ret") || is_word(tokens.get(at + 1), "_"))
    };
    let start = (0..tokens.len()).rev().find(is_result)?;
    let is_end = |token: &TokenTree| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';' && punct.spacing() == Spacing::Alone,
        _ => false,
    };
    let end = start + tokens[start..].iter().position(is_end)?;
    let body = group(tokens[end - 1].clone(), Delimiter::Brace)?;
    Some((tokens[..start].iter().cloned().collect(), body))
}

fn group(token: TokenTree, delimiter: Delimiter) -> Option<Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// Returns the output of the future in a return type, and whether the future is in a box.
fn output(ty: &Type) -> Option<(Type, bool)> {
    match ty {
        Type::Group(ty) => output(&ty.elem),
        Type::Paren(ty) => output(&ty.elem),
        Type::ImplTrait(ty) => Some((of_bounds(ty.bounds.iter())?, false)),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            if last.ident == "BoxFuture" || last.ident == "LocalBoxFuture" {
                return Some((types(last).next_back()?.clone(), true));
            }
            let Type::Path(inner) = types(last).next().filter(|_| last.ident == "Pin")? else {
                return None;
            };
            let inner = inner.path.segments.last().filter(|inner| inner.ident == "Box")?;
            match types(inner).next()? {
                Type::TraitObject(object) => Some((of_bounds(object.bounds.iter())?, true)),
                Type::ImplTrait(ty) => Some((of_bounds(ty.bounds.iter())?, true)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn of_bounds<'a>(mut bounds: impl Iterator<Item = &'a TypeParamBound>) -> Option<Type> {
    bounds.find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let last = bound.path.segments.last().filter(|last| last.ident == "Future")?;
        arguments(last).find_map(|argument| match argument {
            GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(assoc.ty.clone()),
            _ => None,
        })
    })
}

fn arguments(segment: &PathSegment) -> impl DoubleEndedIterator<Item = &GenericArgument> {
    let arguments: Option<&AngleBracketedGenericArguments> = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments),
        _ => None,
    };
    arguments.into_iter().flat_map(|arguments| arguments.args.iter())
}

fn types(segment: &PathSegment) -> impl DoubleEndedIterator<Item = &Type> {
    arguments(segment).filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Whether the return type looks like a future, even if its output could not be found.
pub(crate) fn is_about_futures(sig: &Signature) -> bool {
    let output = sig.output.to_token_stream();
    idents(output)
        .any(|name| name.starts_with("Fut") || name.ends_with("Fut") || name.ends_with("Future"))
}

fn idents(tokens: TokenStream) -> Box<dyn Iterator<Item = String>> {
    Box::new(tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => idents(group.stream()),
        TokenTree::Ident(ident) => Box::new(std::iter::once(ident.to_string())),
        _ => Box::new(std::iter::empty()),
    }))
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

    fn shape(item: &str) -> Shape {
        let function: syn::ItemFn = syn::parse_str(item).expect(item);
        let body: TokenStream =
            function.block.stmts.iter().map(ToTokens::to_token_stream).collect();
        Shape::of(&function.sig, &body)
    }

    #[test]
    fn finds_what_a_future_comes_to() {
        for (ty, expected) in [
            ("impl Future<Output = u8> + Send", Some(("u8", false))),
            ("impl Send + std::future::Future<Output = R<T>>", Some(("R < T >", false))),
            ("BoxFuture<'_, R>", Some(("R", true))),
            ("futures::future::LocalBoxFuture<'a, R>", Some(("R", true))),
            ("Pin<Box<dyn Future<Output = (A, B)> + Send + '_>>", Some(("(A , B)", true))),
            ("(impl Future<Output = u8>)", Some(("u8", false))),
            ("impl Future", None),
            ("Pin<Box<impl Future<Output = u8> + Send>>", Some(("u8", true))),
            ("Pin<Arc<dyn Future<Output = u8>>>", None),
            ("Ready<u8>", None),
        ] {
            let found = match shape(&format!("fn f() -> {ty} {{ x }}")) {
                Shape::Future { output, boxed } => {
                    Some((output.to_token_stream().to_string(), boxed))
                }
                _ => None,
            };
            let expected = expected.map(|(output, boxed)| (output.to_owned(), boxed));
            assert_eq!(found, expected, "{ty}");
        }
    }

    #[test]
    fn looks_into_what_async_trait_makes() {
        let shape = shape(
            "fn f<'life0, 'async_trait>(&'life0 self, __arg1: (u8, u8)) -> \
             Pin<Box<dyn Future<Output = R> + Send + 'async_trait>> where 'life0: 'async_trait { \
             Box::pin(async move { \
             if let Some(__ret) = None::<R> { #[allow(unreachable_code)] return __ret; } \
             let __self = self; let (a, b) = { let __arg1 = __arg1; __arg1 }; \
             let __ret: R = { __self.g(a, b); let x = 1; x }; #[allow(unreachable_code)] __ret }) }",
        );
        let frame = shape.frame().expect("a frame");
        assert_eq!(frame.pin.to_string(), "Box :: pin");
        assert_eq!(frame.body.stream().to_string(), "__self . g (a , b) ; let x = 1 ; x");
        assert!(frame.receiver.as_ref().is_some_and(|name| name == "__self"));
        let names: Vec<String> = frame.bindings.iter().map(Ident::to_string).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(frame.prelude.to_string().starts_with("if let Some"));
    }
}
