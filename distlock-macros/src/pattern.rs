//! What a pattern binds.

use syn::{Ident, Pat};

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
