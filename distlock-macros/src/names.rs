//! What a key can name, and the answer to a name that is none of it.

use syn::ext::IdentExt;
use syn::{Error, GenericParam};

use crate::function::Function;
use crate::key::{Arguments, Template};
use crate::suggest;

/// What else there is to a name that is none.
pub(crate) const MEND: &str = "a constant is written in capitals; for any other value write \
                               `key(\"…{}…\", value)`";

/// What the names in one key can stand for.
pub(crate) struct Names<'a> {
    pub(crate) function: &'a Function,
    /// Those of `key("…", …)`.
    pub(crate) values: Option<&'a Arguments>,
}

impl Names<'_> {
    /// What is wrong with a name, if something is. Constants and statics are not to be seen from here:
    /// what is written like one, or like a type, is left to rustc.
    pub(crate) fn mistake(&self, name: &str) -> Option<String> {
        let is_like_a_value = name.trim_start_matches('_').starts_with(char::is_lowercase);
        let is_value = self.values.is_some_and(|values| values.get(name).is_some());
        let there = self.there();
        if name == "self" || is_value || !is_like_a_value || there.iter().any(|one| one == name) {
            return None;
        }
        let function = self.function.sig.ident.unraw();
        let list = || {
            let names: Vec<String> = there.iter().map(|name| format!("`{{{name}}}`")).collect();
            let are = if names.len() == 1 { "is" } else { "are" };
            format!("there {are} {}", names.join(", "))
        };
        let mend = match suggest::nearest(name, there.iter().map(String::as_str)) {
            Some(near) if there.len() == 1 => format!(": did you mean `{{{near}}}`?"),
            Some(near) => format!(": did you mean `{{{near}}}`? ({})", list()),
            None if there.is_empty() => String::new(),
            None => format!(": {}", list()),
        };
        Some(format!("`{function}` has no argument `{name}`{mend}"))
    }

    /// The mistakes of a template, shown at its text.
    pub(crate) fn mistakes(&self, template: &Template) -> Vec<Error> {
        let mistake = |name: &str| Some(Error::new(template.literal.span(), self.mistake(name)?));
        template.bases().into_iter().filter_map(mistake).collect()
    }

    fn there(&self) -> Vec<String> {
        let Self { function, values } = self;
        let values = values.iter().flat_map(|values| values.named.iter().map(|(name, _)| name));
        let generics = function.sig.generics.params.iter().filter_map(|param| match param {
            GenericParam::Const(param) => Some(&param.ident),
            _ => None,
        });
        let receiver = function.receiver().map(|_| "self".to_owned());
        let bindings = function.bindings();
        let named = values.chain(&bindings).chain(generics).map(|name| name.unraw().to_string());
        // What other macros make up is nothing to write.
        let mut names = Vec::new();
        for name in receiver.into_iter().chain(named).filter(|name| !name.starts_with("__")) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}
