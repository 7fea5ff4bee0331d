//! The commands of a store, as observers know them.

/// The words of [`Verb`], in its order.
pub(super) const COMMANDS: [&str; 7] =
    ["set", "acquire", "confirm", "exchange", "release", "renew", "inspect"];

/// What a store is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Set,
    Acquire,
    Confirm,
    Exchange,
    Release,
    Renew,
    Inspect,
}

impl Verb {
    pub(super) fn as_str(self) -> &'static str {
        COMMANDS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_verbs() {
        use Verb::{Acquire, Confirm, Exchange, Inspect, Release, Renew, Set};
        let verbs = [Set, Acquire, Confirm, Exchange, Release, Renew, Inspect];
        let words = verbs.map(|verb| format!("{verb:?}").to_lowercase());
        assert_eq!(words, COMMANDS);
        assert_eq!(verbs.map(Verb::as_str), COMMANDS);
    }
}
