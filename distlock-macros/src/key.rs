//! The template of a key, with the values that follow it.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Error, Expr, Ident, LitStr, Member};

use crate::template::{Numbers, Piece, Placeholder, scan};

/// `"order:{order_id}"`, taken apart.
pub(crate) struct Template {
    /// As the user wrote it; `format_args!` gets this very token where it can, so that rustc's
    /// carets point into the text.
    pub(crate) literal: LitStr,
    pub(crate) pieces: Vec<Piece>,
}

/// The values in `key("…", …)`.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Ident, Expr)>,
}

impl Arguments {
    /// The value a placeholder's base stands for, if it is one of these.
    pub(crate) fn get(&self, base: &str) -> Option<&Expr> {
        match base.parse::<usize>() {
            Ok(number) => self.positional.get(number),
            Err(_) => {
                self.named.iter().find(|(name, _)| name.unraw() == base).map(|(_, value)| value)
            }
        }
    }
}

impl Template {
    pub(crate) fn parse(literal: LitStr) -> syn::Result<Self> {
        match scan(&literal.value(), &mut Numbers::None) {
            Ok(pieces) => Ok(Self { literal, pieces }),
            Err(message) => Err(Error::new(literal.span(), message)),
        }
    }

    /// The text in `key("…", …)`, whose placeholders may be values without a name.
    pub(crate) fn parse_call(literal: LitStr, values: &Arguments) -> syn::Result<Self> {
        let wrong = |message: String| Error::new(literal.span(), message);
        let pieces = scan(&literal.value(), &mut Numbers::Next(0)).map_err(wrong)?;
        let template = Self { literal: literal.clone(), pieces };
        let given = values.positional.len();
        if let Some(number) =
            template.placeholders().filter_map(Placeholder::number).find(|number| *number >= given)
        {
            let values = if given == 1 { "value follows" } else { "values follow" };
            return Err(wrong(format!(
                "there is no value number {}: only {given} {values} the text",
                number + 1
            )));
        }
        let is_used = |base: &str| {
            template.placeholders().any(|placeholder| {
                placeholder.base == base || placeholder.counts.iter().any(|count| count == base)
            })
        };
        let named = values.named.iter().map(|(name, value)| (name.unraw().to_string(), value));
        let numbered =
            values.positional.iter().enumerate().map(|(number, value)| (number.to_string(), value));
        for (base, value) in numbered.chain(named) {
            if !is_used(&base) {
                return Err(Error::new_spanned(
                    value,
                    "this value has no place in the text: write a `{}` for it",
                ));
            }
        }
        Ok(template)
    }

    /// Whether the text, followed by values, has a place for one of this name, or for one without.
    pub(crate) fn takes_value(literal: &LitStr, name: Option<&str>) -> bool {
        let pieces = scan(&literal.value(), &mut Numbers::Next(0)).unwrap_or_default();
        pieces.iter().any(|piece| match (piece, name) {
            (Piece::Text(_), _) => false,
            (Piece::Placeholder(placeholder), Some(name)) => {
                placeholder.base == name || placeholder.counts.iter().any(|count| count == name)
            }
            (Piece::Placeholder(placeholder), None) => placeholder.number().is_some(),
        })
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Placeholder(placeholder) => Some(placeholder),
            Piece::Text(_) => None,
        })
    }

    /// The names at the start of placeholders, each once.
    pub(crate) fn bases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.placeholders().map(|one| one.base.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// All of it is text and plain names, which `format_args!` reads as the user wrote it.
    pub(crate) fn is_plain(&self) -> bool {
        self.placeholders()
            .all(|one| one.fields.is_empty() && one.base != "self" && one.counts.is_empty())
    }

    /// Whether some placeholder prints the plain name.
    pub(crate) fn prints(&self, name: &str) -> bool {
        self.placeholders()
            .any(|placeholder| placeholder.base == name && placeholder.fields.is_empty())
    }

    /// For every placeholder the first character of the text between it and the next one: where a
    /// value contains it, two argument lists could meet in one key.
    pub(crate) fn separators(&self) -> Vec<Option<char>> {
        let is_placeholder = |piece: Option<&Piece>| matches!(piece, Some(Piece::Placeholder(_)));
        (0..self.pieces.len())
            .filter(|i| is_placeholder(self.pieces.get(*i)))
            .map(|i| match self.pieces.get(i + 1) {
                Some(Piece::Text(text)) if is_placeholder(self.pieces.get(i + 2)) => {
                    text.chars().next()
                }
                _ => None,
            })
            .collect()
    }

    /// A span on the literal that does not count as the user's own code: rustc would otherwise
    /// offer to replace the whole text by a name it thinks was meant.
    pub(crate) fn generated_span(&self) -> Span {
        Span::call_site().located_at(self.literal.span())
    }
}

/// A name in a template is written without `r#`, also where the code needs it.
pub(crate) fn ident(name: &str, span: Span) -> Ident {
    match syn::parse_str::<Ident>(name) {
        Ok(_) => Ident::new(name, span),
        Err(_) if name == "self" => Ident::new(name, span),
        Err(_) => Ident::new_raw(name, span),
    }
}

/// `tenant` or `0`, after a dot.
pub(crate) fn member(name: &str, span: Span) -> Member {
    match name.parse::<u32>() {
        Ok(index) => Member::Unnamed(syn::Index { index, span }),
        Err(_) => Member::Named(ident(name, span)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_the_first_character_before_the_next_placeholder() {
        let parse = |text| Template::parse(LitStr::new(text, Span::call_site()));
        let separators = |text| parse(text).expect("a template").separators();
        assert_eq!(separators("{a}-{b}"), [Some('-'), None]);
        assert_eq!(separators("{a}::{b}/x"), [Some(':'), None]);
        assert_eq!(separators("x{a}{{{b}→{c}"), [Some('{'), Some('→'), None]);
    }
}
