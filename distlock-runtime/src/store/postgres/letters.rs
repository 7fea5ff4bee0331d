//! Messages: of the functions in the database about locks, and of processes to each other.
//!
//! What a function sends is `kind token name`. What a process sends to another is `m`, the length of the prefix under
//! which it does so, the prefix and a text of R15.

use distlock_postgres::{Fault, Table};

use crate::name::StoredName;
use crate::store::{Letter, Listener, Message, Notification};

/// Sends letters; says of each whether its process listens.
pub(super) async fn send(table: &Table, letters: &[Letter]) -> Result<Vec<bool>, Fault> {
    let text =
        |letter: &Letter| format!("m {} {}{}", letter.prefix.len(), letter.prefix, letter.text);
    let letters: Vec<_> = letters.iter().map(|letter| (letter.to.as_str(), text(letter))).collect();
    table.lane(0).await?.send(&letters).await
}

/// Hands on what is heard; what is in another form is ignored.
pub(super) fn hear(text: &str, listener: &Listener) {
    let mut words = text.splitn(3, ' ');
    let (Some(kind), Some(word), Some(rest)) = (words.next(), words.next(), words.next()) else {
        return;
    };
    if kind == "m" {
        return hear_process(word, rest, listener);
    }
    let message = Message { stored: &StoredName::new(rest.to_owned()), token: word };
    match kind {
        "g" => listener(Notification::Reserved(message)),
        "s" => listener(Notification::WaiterBehind(message)),
        "x" => listener(Notification::TakenAway(message)),
        _ => {}
    }
}

fn hear_process(length: &str, rest: &str, listener: &Listener) {
    let letter = length.parse().ok().and_then(|length| rest.split_at_checked(length));
    let Some((prefix, text)) = letter else { return };
    match text.split_once(' ') {
        Some(("q", text)) => listener(Notification::Question { prefix, text }),
        Some(("a", text)) => listener(Notification::Answer(text)),
        _ => {}
    }
}
