//! The request for the lock: which manager, which keys, and how it is to be held.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;

use super::expansion::Code;
use super::key::{self, Scope};
use super::tokens::ends;
use crate::duration;
use crate::keys::{KeyValue, Keys};
use crate::options::Setting;
use crate::value::{Time, Value};

impl Code<'_> {
    /// `let __request = …;`, with `missing` where there is no manager.
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

    /// The label in errors and events.
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

    /// The keys, and what makes a request of them.
    fn keys(&self) -> (TokenStream, Ident) {
        let Self { function, private, .. } = self;
        let site = Span::mixed_site();
        let scope = Scope::Signature {
            function,
            names: function.bindings(),
            receiver: self.receiver.clone(),
        };
        let one = |key: &KeyValue| key::value(key, &scope, private, |expr| self.expr(expr));
        let (keys, make) = match self.keys {
            Keys::Array(keys) => match &keys[..] {
                [key] => (one(key), "request"),
                keys => {
                    let keys = keys.iter().map(one);
                    (quote_spanned!(site=> [#(#keys),*]), "request_all")
                }
            },
            Keys::Expr(expr) => {
                let (first, last) = ends(expr);
                let (expr, keys) = (self.expr(expr), Ident::new("keys", last));
                (quote_spanned!(first=> #private::#keys(#expr)), "request_all")
            }
        };
        (keys, Ident::new(make, site))
    }

    /// `.ttl(…)`
    fn setting(&self, Setting { name, value }: &Setting) -> TokenStream {
        let Self { private, .. } = self;
        let site = Span::mixed_site();
        let method = Ident::new(name, site);
        let value = match value {
            Value::Time(Time::Literal(duration, _)) => duration::tokens(*duration),
            Value::Time(Time::Expr(time)) => self.expr(time),
            Value::Bool(value) => value.to_token_stream(),
            Value::Number(number) => self.expr(number),
            Value::Variant(of, variant) => {
                let (of, variant) = (Ident::new(of, site), Ident::new(variant, site));
                quote_spanned!(site=> #private::#of::#variant)
            }
        };
        quote_spanned!(site=> .#method(#value))
    }
}
