//! The request for the lock: its manager, its keys and its settings.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;

use super::expansion::Expansion;
use super::key::{self, NameScope};
use super::tokens::ends;
use crate::duration;
use crate::keys::{KeySource, KeySources};
use crate::options::Setting;
use crate::value::{SettingValue, Time};

impl Expansion<'_> {
    /// Declares `__request`. `missing` handles the error if there is no manager.
    pub(super) fn request(&self, missing: &TokenStream) -> TokenStream {
        let Self { options, private, .. } = self;
        let site = Span::mixed_site();
        let (keys, make) = self.keys();
        let (manager, name) = (self.manager(missing), self.name());
        let settings = options.settings.iter().map(|setting| self.setting(setting));
        let request = quote_spanned! {site=>
            #private::#make(#manager, __key, #name) #(#settings)*
        };
        let request = match &options.prefix {
            None => request,
            Some(prefix) => {
                let (first, last) = ends(prefix);
                let prefixed = Ident::new("prefixed", last);
                let prefix = self.borrowed(prefix);
                quote_spanned!(first=> #private::#prefixed(#request, #prefix))
            }
        };
        match &options.when {
            None => quote_spanned! {site=>
                let __key = #keys;
                let __request = #request;
            },
            Some(when) => {
                let when = self.expr(when);
                quote_spanned! {site=>
                    let __when: ::core::primitive::bool = #when;
                    let __request = if __when {
                        let __key = #keys;
                        ::core::option::Option::Some(#request)
                    } else {
                        ::core::option::Option::None
                    };
                }
            }
        }
    }

    fn manager(&self, missing: &TokenStream) -> TokenStream {
        let Self { options, private, .. } = self;
        match &options.manager {
            Some(expr) => {
                let (first, _) = ends(expr);
                let expr = self.borrowed(expr);
                quote_spanned!(first=> #private::AsLockManager::lock_manager(#expr))
            }
            None => quote_spanned! {Span::mixed_site()=>
                &match #private::global() {
                    ::core::result::Result::Ok(__manager) => __manager,
                    ::core::result::Result::Err(__error) => #missing,
                }
            },
        }
    }

    /// Returns the label for errors and events.
    fn name(&self) -> TokenStream {
        match &self.options.name {
            Some(name) => name.to_token_stream(),
            None => {
                let name = self.function.sig.ident.unraw().to_string();
                quote_spanned! {Span::mixed_site()=>
                    ::core::concat!(::core::module_path!(), "::", #name)
                }
            }
        }
    }

    /// Returns the keys, and the runtime's function that makes a request of them.
    fn keys(&self) -> (TokenStream, Ident) {
        let Self { function, private, .. } = self;
        let site = Span::mixed_site();
        let scope = NameScope::Signature {
            function,
            names: function.bindings(),
            receiver: self.receiver.clone(),
        };
        let one = |key: &KeySource| key::value(key, &scope, private, |expr| self.expr(expr));
        let (keys, make) = match self.keys {
            KeySources::Array(keys) => match &keys[..] {
                [key] => (one(key), "request"),
                keys => {
                    let keys = keys.iter().map(one);
                    (quote_spanned!(site=> [#(#keys),*]), "request_all")
                }
            },
            KeySources::Expr(expr) => {
                let (first, last) = ends(expr);
                let (expr, keys) = (self.expr(expr), Ident::new("keys", last));
                (quote_spanned!(first=> #private::#keys(#expr)), "request_all")
            }
        };
        (keys, Ident::new(make, site))
    }

    /// Calls the request's method, for example `.ttl(…)`.
    fn setting(&self, Setting { name, value }: &Setting) -> TokenStream {
        let Self { private, .. } = self;
        let site = Span::mixed_site();
        let method = Ident::new(name, site);
        let value = match value {
            SettingValue::Time(Time::Literal(duration, _)) => duration::tokens(*duration),
            SettingValue::Time(Time::Expr(time)) => self.expr(time),
            SettingValue::Bool(value) => value.to_token_stream(),
            SettingValue::Number(number) => self.expr(number),
            SettingValue::Variant(of, variant) => {
                let (of, variant) = (Ident::new(of, site), Ident::new(variant, site));
                quote_spanned!(site=> #private::#of::#variant)
            }
        };
        quote_spanned!(site=> .#method(#value))
    }
}
