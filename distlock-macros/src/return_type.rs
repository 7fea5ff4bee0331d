//! Checks of `-> impl Trait`. The expansion returns a `Result` of the body's value and a `LockError`, for which the web
//! frameworks implement `IntoResponse` and `Responder`.

use syn::{TypeImplTrait, TypeParamBound};

pub(crate) const UNKNOWN_TYPE: &str = "a `LockError` cannot be made into an unknown type: return a \
    `Result` of it, for example `Result<impl Sized, E>` where `E: From<LockError>`, or say what to \
    return instead with `on_fail = |error| …`";

/// Traits that `Result<_, LockError>` does not implement, or implements with another meaning. Without this check
/// rustc's error would mention a `Result` that the user never wrote.
const STD_TRAITS: [&str; 32] = [
    "Any",
    "AsMut",
    "AsRef",
    "Borrow",
    "BorrowMut",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Deref",
    "DerefMut",
    "Display",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Error",
    "ExactSizeIterator",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "Hash",
    "Into",
    "IntoIterator",
    "Iterator",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Read",
    "ToString",
    "TryInto",
    "Write",
];

/// Returns the error message if an error cannot be returned as this type.
pub(crate) fn refusal(ty: &TypeImplTrait) -> Option<String> {
    refused(ty, cfg!(feature = "axum"), cfg!(feature = "actix"))
}

fn refused(ty: &TypeImplTrait, axum: bool, actix: bool) -> Option<String> {
    let traits: Vec<String> = ty.bounds.iter().filter_map(name).collect();
    let has = |name: &str| traits.iter().any(|one| one == name);
    let disabled = |framework: &str| {
        Some(format!(
            "a `LockError` is not a response of {framework} yet: enable the feature `{framework}` of \
             distlock"
        ))
    };
    if has("IntoResponse") {
        return if axum { None } else { disabled("axum") };
    }
    if has("Responder") {
        return if actix { None } else { disabled("actix") };
    }
    // The user's own trait may be implemented for a `Result` of responses.
    let unknown = |name: &String| !STD_TRAITS.contains(&name.as_str()) && !is_marker(name);
    if (axum || actix) && traits.iter().any(unknown) {
        return None;
    }
    Some(UNKNOWN_TYPE.to_owned())
}

fn is_marker(name: &str) -> bool {
    ["Send", "Sync", "Sized", "Unpin", "UnwindSafe", "RefUnwindSafe"].contains(&name)
}

fn name(bound: &TypeParamBound) -> Option<String> {
    match bound {
        TypeParamBound::Trait(bound) => {
            bound.path.segments.last().map(|segment| segment.ident.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    fn refused(ty: &str, axum: bool, actix: bool) -> Option<String> {
        super::refused(&syn::parse_str(ty).expect(ty), axum, actix)
    }

    #[test]
    fn traits_of_the_frameworks_need_their_feature() {
        for (ty, axum) in [
            ("impl IntoResponse", true),
            ("impl axum::response::IntoResponse + Send + use<>", true),
            ("impl Responder", false),
            ("impl 'static + ::actix_web::Responder", false),
        ] {
            assert_eq!(refused(ty, axum, !axum), None, "{ty}");
            let feature = if axum { "the feature `axum`" } else { "the feature `actix`" };
            for message in [refused(ty, !axum, axum), refused(ty, false, false)] {
                assert!(message.is_some_and(|message| message.contains(feature)), "{ty}");
            }
        }
    }

    #[test]
    fn traits_of_the_standard_library_are_refused() {
        for ty in
            ["impl Display", "impl Iterator<Item = u8> + Send", "impl Sized", "impl Send + '_"]
        {
            assert!(
                refused(ty, true, true).is_some_and(|message| message.contains("on_fail")),
                "{ty}"
            );
        }
    }

    #[test]
    fn traits_of_the_users_own_are_left_to_rustc_where_there_is_a_framework() {
        assert_eq!(refused("impl Reply", true, false), None);
        assert_eq!(refused("impl Send + crate::Reply", false, true), None);
        assert!(refused("impl Reply", false, false).is_some());
    }
}
