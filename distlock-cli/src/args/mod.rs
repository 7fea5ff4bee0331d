//! The command line: what may be written, and what it means.

mod definition;
mod duration;
mod hint;

use std::ffi::OsString;
use std::time::Duration;

use clap::ArgMatches;
use clap::error::{ContextKind, ErrorKind};

use crate::exit;
use crate::messages::{self, Volume};
use crate::run::options::RunOptions;
use crate::store::StoreOptions;
#[cfg(feature = "top")]
use crate::top::options::TopOptions;

/// The command that runs others.
const RUN: &str = "run";

/// What the command line asks for.
pub(crate) struct Asked {
    pub(crate) store: StoreOptions,
    pub(crate) action: Action,
}

pub(crate) enum Action {
    Run(Box<RunOptions>),
    Ls {
        pattern: Option<String>,
        limit: usize,
        json: bool,
    },
    Inspect {
        key: String,
        json: bool,
    },
    Release {
        key: String,
        force: bool,
        yes: bool,
    },
    Doctor {
        json: bool,
    },
    #[cfg(feature = "top")]
    Top(TopOptions),
    Completions(clap_complete::Shell),
    Man {
        command: Option<String>,
    },
}

/// What the arguments of this process ask for. Where they cannot be used, or ask for help, that is
/// printed, and the error is the exit code.
pub(crate) fn parse() -> Result<Asked, u8> {
    let given: Vec<OsString> = std::env::args_os().collect();
    match definition::program().try_get_matches_from(&given) {
        Ok(matches) => Ok(asked(&matches)),
        Err(mut error) => {
            if is_run(&given) {
                // It says to write `--`, behind which the command stands here.
                let _ = error.remove(ContextKind::Suggested);
            }
            // A closed pipe is no reason to fail.
            let _ = error.print();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Err(exit::OK),
                _ => {}
            }
            if let Some(hint) = hint::of(&error, &given) {
                messages::plain(&hint);
            }
            Err(exit::USAGE)
        }
    }
}

/// The whole command, for completions and manual pages.
pub(crate) fn program() -> clap::Command {
    definition::program()
}

fn asked(matches: &ArgMatches) -> Asked {
    let (name, matches) = matches.subcommand().unwrap_or(("", matches));
    let text = |id: &str| matches.get_one::<String>(id).cloned();
    let flag = |id: &str| matches.get_flag(id);
    let key = || text("key").unwrap_or_default();
    let action = match name {
        RUN => Action::Run(Box::new(run_options(matches))),
        "ls" => {
            let limit = matches.get_one::<u32>("limit").map_or(1000, |limit| *limit as usize);
            Action::Ls { pattern: text("pattern"), limit, json: flag("json") }
        }
        "inspect" => Action::Inspect { key: key(), json: flag("json") },
        "release" => Action::Release { key: key(), force: flag("force"), yes: flag("yes") },
        "doctor" => Action::Doctor { json: flag("json") },
        #[cfg(feature = "top")]
        "top" => {
            let interval = matches.get_one("interval").copied();
            let interval = interval.unwrap_or(Duration::from_secs(1));
            Action::Top(TopOptions { interval, once: flag("once"), json: flag("json") })
        }
        "completions" => {
            let shell = matches.get_one("shell").copied();
            Action::Completions(shell.unwrap_or(clap_complete::Shell::Bash))
        }
        _ => Action::Man { command: text("command") },
    };
    Asked { store: StoreOptions { url: text("url"), prefix: text("prefix") }, action }
}

fn run_options(matches: &ArgMatches) -> RunOptions {
    let duration = |id: &str| matches.get_one::<Duration>(id).copied();
    let flag = |id: &str| matches.get_flag(id);
    RunOptions {
        keys: ["key", "keys"]
            .iter()
            .flat_map(|id| matches.get_many(id).into_iter().flatten().cloned())
            .collect(),
        command: matches.get_many("command").into_iter().flatten().cloned().collect(),
        shared: flag("shared"),
        permits: matches.get_one("permits").copied(),
        wait: duration("wait").unwrap_or_default(),
        ttl: duration("ttl").unwrap_or(Duration::from_secs(30)),
        busy_code: matches.get_one("busy-exit-code").copied().unwrap_or(exit::BUSY),
        skip_if_held: flag("skip-if-held"),
        min_hold: duration("min-hold"),
        max_hold: duration("max-hold"),
        grace: duration("grace"),
        end_on_loss: matches.get_one::<String>("on-lost").is_none_or(|what| what != "continue"),
        foreground: flag("foreground"),
        name: matches.get_one("name").cloned(),
        volume: match (flag("quiet"), flag("verbose")) {
            (true, _) => Volume::Quiet,
            (_, true) => Volume::Verbose,
            _ => Volume::Normal,
        },
        json: flag("json"),
    }
}

/// Whether the command is `run`.
fn is_run(given: &[OsString]) -> bool {
    let program = definition::program();
    let is_command =
        |word: &&OsString| program.get_subcommands().any(|known| **word == *known.get_name());
    given.iter().skip(1).find(is_command).is_some_and(|word| word == RUN)
}
