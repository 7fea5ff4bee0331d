//! What a command finds in its environment, and what a run finds there that was started by one.

use std::ffi::OsString;

use distlock::LockManager;

use crate::exit;
use crate::store::{Failure, Named};

const KEY: &str = "DISTLOCK_KEY";
const KEYS: &str = "DISTLOCK_KEYS";
const FENCING_TOKEN: &str = "DISTLOCK_FENCING_TOKEN";
const HELD: &str = "DISTLOCK_HELD";
/// Which store the names of `DISTLOCK_KEYS` are names in.
const STORE: &str = "DISTLOCK_STORE";

/// The names in the store of these keys.
pub(super) fn names(manager: &LockManager, keys: &[String]) -> Result<Vec<String>, Failure> {
    keys.iter().map(|key| Ok(manager.stored_name(key)?)).collect()
}

/// Fails if a run that this one was started by holds one of them: it would wait for itself.
pub(super) fn check_nesting(store: &Named, names: &[String]) -> Result<(), Failure> {
    match held_above(store).iter().find(|held| names.contains(held)) {
        None => Ok(()),
        Some(_) => Err(Failure {
            text: "the lock is already held by the distlock run that started this one; it would wait for \
                   itself for ever"
                .to_owned(),
            code: exit::FAILED,
        }),
    }
}

/// What the command is given, in addition to the environment of this process.
pub(super) fn of_command(
    store: &Named,
    keys: &[String],
    names: &[String],
    fencing_token: u64,
) -> Vec<(&'static str, OsString)> {
    let mut all = held_above(store);
    all.extend(names.iter().cloned());
    vec![
        (KEY, keys.first().cloned().unwrap_or_default().into()),
        (KEYS, all.join("\n").into()),
        (FENCING_TOKEN, fencing_token.to_string().into()),
        (HELD, "1".into()),
        (STORE, store_id(&store.url).into()),
    ]
}

/// What runs hold that this one was started by, in the same store.
fn held_above(store: &Named) -> Vec<String> {
    let same = std::env::var(STORE).is_ok_and(|id| id == store_id(&store.url));
    let held = if same { std::env::var(KEYS).unwrap_or_default() } else { String::new() };
    held.lines().map(str::to_owned).collect()
}

/// Tells stores apart, and tells no password: of the place alone, and no more of that than a number.
fn store_id(url: &str) -> String {
    let place = url.rsplit_once('@').map_or(url, |(_, place)| place);
    let place = place.split('?').next().unwrap_or_default();
    let place = place.split_once("://").map_or(place, |(_, place)| place);
    // FNV-1a: the same in every version of this program.
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", place.bytes().fold(0xcbf2_9ce4_8422_2325, add))
}

#[cfg(test)]
mod tests {
    use super::store_id;

    #[test]
    fn a_store_is_told_without_its_password() {
        assert_eq!(store_id("redis://user:p@ss@host:1/2"), store_id("redis://host:1/2"));
        assert_eq!(store_id("redis+unix:///a/b?pass=secret"), store_id("redis+unix:///a/b"));
        assert_ne!(store_id("redis://host/1"), store_id("redis://host/2"));
    }
}
