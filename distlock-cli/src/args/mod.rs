//! The command line: its definition, and the invocation that it is parsed into.

mod definition;
mod duration;
mod hint;

pub(crate) use definition::{print_completions, print_manual};

use std::ffi::OsString;
use std::time::Duration;

use clap::ArgMatches;
use clap::error::{ContextKind, ErrorKind};

use self::definition::RUN;
use crate::exit;
use crate::messages::{self, Verbosity};
use crate::run::RunOptions;
use crate::store::StoreOptions;

/// A parsed command line.
pub(crate) struct Invocation {
    pub(crate) store: StoreOptions,
    pub(crate) action: Action,
}

/// The command, with its arguments.
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
    Top(crate::top::TopOptions),
    Completions(clap_complete::Shell),
    Man {
        command: Option<String>,
    },
}

/// Parses the arguments of this process. If they ask for help, or cannot be used, prints the help or the mistake and
/// returns the exit code as an error.
pub(crate) fn parse() -> Result<Invocation, u8> {
    let given: Vec<OsString> = std::env::args_os().collect();
    match definition::program().try_get_matches_from(&given) {
        Ok(matches) => Ok(invocation(&matches)),
        Err(mut error) => {
            if definition::is_run(&given) {
                // clap suggests `--`, which is there already: the command follows it.
                let _ = error.remove(ContextKind::Suggested);
            }
            // Ignores a closed pipe, which is no reason to fail.
            let _ = error.print();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Err(exit::OK),
                _ => {}
            }
            if let Some(hint) = hint::hint(&error, &given) {
                messages::plain(&hint);
            }
            Err(exit::USAGE)
        }
    }
}

fn invocation(matches: &ArgMatches) -> Invocation {
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
            Action::Top(crate::top::TopOptions { interval, once: flag("once"), json: flag("json") })
        }
        "completions" => {
            let shell = matches.get_one("shell").copied();
            Action::Completions(shell.unwrap_or(clap_complete::Shell::Bash))
        }
        _ => Action::Man { command: text("command") },
    };
    Invocation { store: StoreOptions { url: text("url"), prefix: text("prefix") }, action }
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
        end_on_loss: matches.get_one::<String>("on-lost").is_none_or(|action| action != "continue"),
        foreground: flag("foreground"),
        name: matches.get_one("name").cloned(),
        verbosity: match (flag("quiet"), flag("verbose")) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        },
        json: flag("json"),
    }
}
