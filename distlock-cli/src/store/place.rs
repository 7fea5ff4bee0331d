//! Where a URL leads, without its secrets.

/// Without user, password and options.
pub(crate) fn place(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // A password that is not written as a URL wants it may contain anything.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{authority}{slash}{path}")
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_place_has_no_password() {
        for (url, expected) in [
            ("redis://user:p@ss@host:1/2", "redis://host:1/2"),
            ("redis://user:p/ss@host:1/2", "redis://host:1/2"),
            ("redis+unix:///a/b?pass=se@cret", "redis+unix:///a/b"),
            ("redis-sentinel://:pw@a,b/main?sentinel_pass=x@y", "redis-sentinel://a,b/main"),
            ("redis://host", "redis://host"),
        ] {
            assert_eq!(place(url), expected);
        }
    }
}
