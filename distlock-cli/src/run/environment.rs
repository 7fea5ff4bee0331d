//! What a command finds in its environment, and what a run finds there that was started by one.

use std::ffi::OsString;

use distlock::LockManager;

use crate::exit;
use crate::failure::Failure;
use crate::store::Named;

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
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    vec![
        (KEY, keys.first().cloned().unwrap_or_default().into()),
        (KEYS, all.join("\n").into()),
        (FENCING_TOKEN, fencing_token.to_string().into()),
        (HELD, "1".into()),
        (STORE, store_id(store).into()),
    ]
}

/// What runs hold that this one was started by, in the same store.
fn held_above(store: &Named) -> Vec<String> {
    let same = std::env::var(STORE).is_ok_and(|id| id == store_id(store));
    let held = if same { std::env::var(KEYS).unwrap_or_default() } else { String::new() };
    held.lines().map(str::to_owned).collect()
}

/// Tells stores apart by where they are, and no more of that than a number.
fn store_id(store: &Named) -> String {
    // FNV-1a: the same in every version of this program.
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", store.place().bytes().fold(0xcbf2_9ce4_8422_2325, add))
}
