//! The arguments of `key!`.

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, LitStr, Path, Result, Token};

use crate::errors::Errors;
use crate::key::Template;
use crate::keys::{self, KeyValue};
use crate::syntax::{comma, once};
use crate::value;

pub(crate) struct KeyCall {
    pub(crate) key: KeyValue,
    /// The text's place, which is the template's.
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
        let literal = keys::text(input)?;
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
            true => KeyValue::Template(Template::parse(literal.clone())?),
            false => keys::with_values(literal.clone(), values)?,
        };
        Ok(Self { key, literal, krate })
    }
}
