//! Functions that are not `async` but return a future, and what `#[async_trait]` makes of those
//! that were.

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::{
    AngleBracketedGenericArguments, Block, GenericArgument, GenericParam, PathArguments,
    PathSegment, ReturnType, Signature, Stmt, Type, TypeParamBound,
};

use crate::pattern::bound_names;

/// How a function comes to its future.
pub(crate) enum Shape {
    /// `async fn`.
    Async,
    /// Neither `async` nor with a future for a return type.
    Sync,
    /// It returns one: `impl Future`, or something pinned in a box.
    Future { output: Type, boxed: bool },
    /// An `async fn` of a trait, after `#[async_trait]`.
    AsyncTrait { output: Type, frame: Box<Frame> },
}

/// `Box::pin(async move { PRELUDE let __ret: R = { BODY }; __ret })`.
pub(crate) struct Frame {
    /// `Box::pin`.
    pub(crate) pin: TokenStream,
    /// `async move`.
    pub(crate) asyncness: TokenStream,
    /// Renames `self` and takes patterns apart: here the arguments have their own names again.
    pub(crate) prelude: TokenStream,
    pub(crate) body: Group,
    /// What `self` is called in the body.
    pub(crate) receiver: Option<Ident>,
    /// What the prelude binds.
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
        match Frame::of(body) {
            Some(frame) if sig.generics.params.iter().any(is_made) => {
                Self::AsyncTrait { output, frame: Box::new(frame) }
            }
            _ => Self::Future { output, boxed },
        }
    }

    pub(crate) fn frame(&self) -> Option<&Frame> {
        match self {
            Self::AsyncTrait { frame, .. } => Some(frame),
            _ => None,
        }
    }
}

impl Frame {
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

/// What stands before `let __ret: R = { BODY };` (or, of a function without a value,
/// `let _: () = { BODY };`), and the body.
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

/// What the future in a return type comes to, and whether it is in a box.
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

/// A return type that speaks of futures, whether or not it could be understood.
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
