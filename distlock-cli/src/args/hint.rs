//! What to say of a command line of `run` that cannot be used: what most probably was meant.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};

use super::{RUN, is_run};

/// Options of flock, consul and timeout, and what does the same here.
const OF_OTHERS: [(&str, &str); 7] = [
    ("--timeout", "--wait DURATION says how long to wait for the lock"),
    ("--nonblock", "not to wait is the default, and --no-wait"),
    ("--nb", "not to wait is the default, and --no-wait"),
    ("--conflict-exit-code", "--busy-exit-code CODE sets it"),
    ("--exclusive", "a lock is exclusive unless --shared is given"),
    ("--kill-after", "--grace DURATION says how long after TERM the command is killed"),
    ("--child-exit-code", "the exit code is that of the command"),
];

pub(super) fn of(error: &clap::Error, given: &[OsString]) -> Option<String> {
    if !is_run(given) {
        return None;
    }
    let unknown = error.kind() == ErrorKind::UnknownArgument;
    let missing = error.kind() == ErrorKind::MissingRequiredArgument
        && error.get(ContextKind::InvalidArg).is_some();
    let what = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    if let Some(meant) = unknown.then(|| meant(&what, given)).flatten() {
        return Some(meant);
    }
    let mut behind = given.iter().skip_while(|word| *word != "--").skip(1);
    if let Some(first) = behind.next() {
        let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
        let of_key = unknown || missing && is_option(first);
        return of_key.then(|| "a key that begins with `-` is written --key=-KEY".to_owned());
    }
    (unknown || missing).then(|| {
        "the command stands behind `--`, with all its options: distlock run KEY -- COMMAND ARGUMENTS"
            .to_owned()
    })
}

/// What an option that is not known was meant to be.
fn meant(what: &str, given: &[OsString]) -> Option<String> {
    let of_others = OF_OTHERS.iter().find(|(name, _)| *name == what);
    if let Some((_, here)) = of_others {
        return Some((*here).to_owned());
    }
    let is_it = |word: &OsString| word.to_str().is_some_and(|word| word.starts_with(what));
    let run = given.iter().position(|word| word == RUN)?;
    if given[..run].iter().skip(1).any(is_it) {
        return Some(format!(
            "options of `run` stand behind it: distlock run {what} KEY -- COMMAND"
        ));
    }
    if what.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(
            "a duration is not negative; a key that begins with `-` is written --key=-KEY"
                .to_owned(),
        );
    }
    (what == "-c" && !given.iter().any(|word| word == "--")).then(|| {
        "a command for the shell stands behind `--`, too: distlock run KEY -- sh -c 'COMMAND'"
            .to_owned()
    })
}
