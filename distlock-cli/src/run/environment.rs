//! The environment of the command, from which a nested run learns the locks of the outer one.

use std::ffi::OsString;

use distlock::LockManager;

use crate::exit::{self, Failure};
use crate::store::StoreConfig;

const KEY: &str = "DISTLOCK_KEY";
const KEYS: &str = "DISTLOCK_KEYS";
const FENCING_TOKEN: &str = "DISTLOCK_FENCING_TOKEN";
const HELD: &str = "DISTLOCK_HELD";
/// The store in which the names of `DISTLOCK_KEYS` are locked.
const STORE: &str = "DISTLOCK_STORE";

/// Returns the names of these keys in the store.
pub(super) fn names(manager: &LockManager, keys: &[String]) -> Result<Vec<String>, Failure> {
    keys.iter().map(|key| Ok(manager.stored_name(key)?)).collect()
}

/// Fails if an outer run holds one of the locks, because this run would wait for itself.
pub(super) fn check_nesting(store: &StoreConfig, names: &[String]) -> Result<(), Failure> {
    match held_by_outer_runs(store).iter().find(|held| names.contains(held)) {
        None => Ok(()),
        Some(_) => Err(Failure {
            text: "the lock is already held by the distlock run that started this one; it would wait for \
                   itself for ever"
                .to_owned(),
            code: exit::FAILED,
        }),
    }
}

/// Returns the variables that the command gets in addition to the environment of this process.
pub(super) fn of_command(
    store: &StoreConfig,
    keys: &[String],
    names: &[String],
    fencing_token: u64,
) -> Vec<(&'static str, OsString)> {
    let mut all = held_by_outer_runs(store);
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

/// Returns the locks that outer runs hold in the same store.
fn held_by_outer_runs(store: &StoreConfig) -> Vec<String> {
    let same = std::env::var(STORE).is_ok_and(|id| id == store_id(store));
    let held = if same { std::env::var(KEYS).unwrap_or_default() } else { String::new() };
    held.lines().map(str::to_owned).collect()
}

/// Returns a number that distinguishes stores by their public URLs, without revealing them.
fn store_id(store: &StoreConfig) -> String {
    // FNV-1a, because the number must be the same in every version of this program.
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", store.public_url().bytes().fold(0xcbf2_9ce4_8422_2325, add))
}
