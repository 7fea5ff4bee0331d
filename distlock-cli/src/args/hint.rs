//! Hints for a command line of `run` that cannot be used.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};

use super::definition::{RUN, is_run};

/// Options of flock, consul and timeout, with hints to the options that replace them.
const FOREIGN_OPTIONS: [(&str, &str); 7] = [
    ("--timeout", "--wait DURATION says how long to wait for the lock"),
    ("--nonblock", "not to wait is the default, and --no-wait"),
    ("--nb", "not to wait is the default, and --no-wait"),
    ("--conflict-exit-code", "--busy-exit-code CODE sets it"),
    ("--exclusive", "a lock is exclusive unless --shared is given"),
    ("--kill-after", "--grace DURATION says how long after TERM the command is killed"),
    ("--child-exit-code", "the exit code is that of the command"),
];

/// Guesses the user's intention.
pub(super) fn hint(error: &clap::Error, given: &[OsString]) -> Option<String> {
    if !is_run(given) {
        return None;
    }
    let unknown = error.kind() == ErrorKind::UnknownArgument;
    let missing = error.kind() == ErrorKind::MissingRequiredArgument
        && error.get(ContextKind::InvalidArg).is_some();
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    if let Some(meant) = unknown.then(|| meant(&argument, given)).flatten() {
        return Some(meant);
    }
    let mut command = given.iter().skip_while(|word| *word != "--").skip(1);
    if let Some(first) = command.next() {
        let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
        let is_key = unknown || missing && is_option(first);
        return is_key.then(|| "a key that begins with `-` is written --key=-KEY".to_owned());
    }
    (unknown || missing).then(|| {
        "the command stands behind `--`, with all its options: distlock run KEY -- COMMAND ARGUMENTS"
            .to_owned()
    })
}

/// Explains how to write an unknown option.
fn meant(argument: &str, given: &[OsString]) -> Option<String> {
    let foreign = FOREIGN_OPTIONS.iter().find(|(name, _)| *name == argument);
    if let Some((_, here)) = foreign {
        return Some((*here).to_owned());
    }
    let is_it = |word: &OsString| word.to_str().is_some_and(|word| word.starts_with(argument));
    let run = given.iter().position(|word| word == RUN)?;
    if given[..run].iter().skip(1).any(is_it) {
        return Some(format!(
            "options of `run` stand behind it: distlock run {argument} KEY -- COMMAND"
        ));
    }
    if argument.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(
            "a duration is not negative; a key that begins with `-` is written --key=-KEY"
                .to_owned(),
        );
    }
    (argument == "-c" && !given.iter().any(|word| word == "--")).then(|| {
        "a command for the shell stands behind `--`, too: distlock run KEY -- sh -c 'COMMAND'"
            .to_owned()
    })
}
