//! The names that a key can use, and the errors about unknown names.

use syn::ext::IdentExt;
use syn::{Error, GenericParam};

use crate::function::Function;
use crate::suggest;
use crate::template::{KeyTemplate, TemplateValues};

/// The note on an error about an unknown name.
pub(crate) const UNKNOWN_NAME_HINT: &str = "a constant is written in capitals; for any other value write \
                               `key(\"…{}…\", value)`";

/// The names that are visible in one key.
pub(crate) struct VisibleNames<'a> {
    pub(crate) function: &'a Function,
    /// The values of `key("…", …)`.
    pub(crate) values: Option<&'a TemplateValues>,
}

impl VisibleNames<'_> {
    /// Describes the mistake, if the name is unknown. A macro cannot see constants and statics, so a name that is
    /// written like one, or like a type, is left to rustc.
    pub(crate) fn mistake(&self, name: &str) -> Option<String> {
        let is_like_a_value = name.trim_start_matches('_').starts_with(char::is_lowercase);
        let is_value = self.values.is_some_and(|values| values.get(name).is_some());
        let visible = self.visible();
        if name == "self" || is_value || !is_like_a_value || visible.iter().any(|one| one == name) {
            return None;
        }
        let function = self.function.sig.ident.unraw();
        let list = || {
            let names: Vec<String> = visible.iter().map(|name| format!("`{{{name}}}`")).collect();
            let are = if names.len() == 1 { "is" } else { "are" };
            format!("there {are} {}", names.join(", "))
        };
        let hint = match suggest::nearest(name, visible.iter().map(String::as_str)) {
            Some(near) if visible.len() == 1 => format!(": did you mean `{{{near}}}`?"),
            Some(near) => format!(": did you mean `{{{near}}}`? ({})", list()),
            None if visible.is_empty() => String::new(),
            None => format!(": {}", list()),
        };
        Some(format!("`{function}` has no argument `{name}`{hint}"))
    }

    /// Returns the mistakes of a template, shown at its text.
    pub(crate) fn mistakes(&self, template: &KeyTemplate) -> Vec<Error> {
        let mistake = |name: &str| Some(Error::new(template.literal.span(), self.mistake(name)?));
        template.bases().into_iter().filter_map(mistake).collect()
    }

    fn visible(&self) -> Vec<String> {
        let Self { function, values } = self;
        let values = values.iter().flat_map(|values| values.named.iter().map(|(name, _)| name));
        let generics = function.sig.generics.params.iter().filter_map(|param| match param {
            GenericParam::Const(param) => Some(&param.ident),
            _ => None,
        });
        let receiver = function.receiver().map(|_| "self".to_owned());
        let bindings = function.bindings();
        let named = values.chain(&bindings).chain(generics).map(|name| name.unraw().to_string());
        // Other macros made up these names, so the user cannot write them.
        let mut names = Vec::new();
        for name in receiver.into_iter().chain(named).filter(|name| !name.starts_with("__")) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}
