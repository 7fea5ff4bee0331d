//! The texts of messages.
//!
//! The functions of the database send `kind token name` about a lock. A process sends another one `m`, the length of the
//! prefix under which the other one listens, that prefix, and a text of R15.

use distlock_core::name::StoredName;
use distlock_core::store::{Listener, Message, Notification, ProcessMessage};

/// The kind of a message that an operator has revoked a lock. `schema.sql` has the other kinds.
pub(crate) const REVOKED: &str = "x";

/// Returns the text of a message to another process.
pub(crate) fn encode(message: &ProcessMessage) -> String {
    format!("m {} {}{}", message.prefix.len(), message.prefix, message.text)
}

/// Passes a message to the listener. Ignores a text that has another form.
pub(crate) fn deliver(text: &str, listener: &Listener) {
    let mut words = text.splitn(3, ' ');
    let (Some(kind), Some(word), Some(rest)) = (words.next(), words.next(), words.next()) else {
        return;
    };
    if kind == "m" {
        return deliver_of_process(word, rest, listener);
    }
    let message = Message { stored: &StoredName::new(rest.to_owned()), token: word };
    match kind {
        "g" => listener(Notification::Reserved(message)),
        "s" => listener(Notification::WaiterBehind(message)),
        REVOKED => listener(Notification::TakenAway(message)),
        _ => {}
    }
}

fn deliver_of_process(length: &str, rest: &str, listener: &Listener) {
    let message = length.parse().ok().and_then(|length| rest.split_at_checked(length));
    let Some((prefix, text)) = message else { return };
    match text.split_once(' ') {
        Some(("q", text)) => listener(Notification::Question { prefix, text }),
        Some(("a", text)) => listener(Notification::Answer(text)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn delivered(text: &str) -> String {
        let heard = Arc::new(Mutex::new(String::new()));
        let own = heard.clone();
        let listener: Listener = Box::new(move |notification| {
            *own.lock().expect("no panic") = format!("{notification:?}");
        });
        deliver(text, &listener);
        let text = heard.lock().expect("no panic");
        text.clone()
    }

    #[test]
    fn a_message_to_a_process_arrives_as_it_was_sent() {
        let message = |text: &str| ProcessMessage {
            prefix: "my shop:".into(),
            to: "p".into(),
            text: text.into(),
        };
        let question = delivered(&encode(&message("q who holds it")));
        assert_eq!(question, r#"Question { prefix: "my shop:", text: "who holds it" }"#);
        assert_eq!(delivered(&encode(&message("a me"))), r#"Answer("me")"#);
    }

    #[test]
    fn a_message_about_a_lock_has_a_kind_and_other_texts_are_ignored() {
        for (text, name) in
            [("g t a b", "Reserved"), ("s t a b", "WaiterBehind"), ("x t a b", "TakenAway")]
        {
            assert!(delivered(text).starts_with(name), "{text}");
        }
        for text in ["", "g", "g t", "y t a", "m x y", "m 99 y", "m 1 \u{e9}", "m 1 yz"] {
            assert_eq!(delivered(text), "", "{text}");
        }
    }
}
