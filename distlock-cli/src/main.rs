//! The program `distlock`: runs commands under locks, and shows which locks are held.

#[cfg(not(unix))]
compile_error!("the program distlock needs Unix: signals, process groups and sockets");

mod args;
mod doctor;
mod exit;
mod failure;
mod inspect;
mod locks;
mod manual;
mod messages;
mod release;
mod run;
mod store;
mod text;
#[cfg(feature = "top")]
mod top;

use std::process::ExitCode;

use args::{Action, Asked};
use failure::Failure;
use store::{Named, secret};

fn main() -> ExitCode {
    if let Some(code) = run::guard() {
        return code.into();
    }
    let code = match args::parse() {
        Ok(asked) => carry_out(asked),
        Err(code) => code,
    };
    // Not by returning: threads that still wait for a store are not waited for.
    std::process::exit(code.into())
}

fn carry_out(Asked { store, action }: Asked) -> u8 {
    if let Some(url) = &store.url {
        secret::hide(url);
    }
    let outcome = match action {
        Action::Run(options) => return run::run(&store, &options),
        Action::Completions(shell) => manual::completions(shell),
        Action::Man { command } => manual::man(command.as_deref()),
        asked => Named::of(&store).and_then(|store| look(&store, asked)),
    };
    outcome.unwrap_or_else(|Failure { text, code }| {
        messages::plain(&text);
        code
    })
}

/// The commands that look into a store.
fn look(store: &Named, action: Action) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::own)?;
    runtime.block_on(async {
        match action {
            Action::Ls { pattern, limit, json } => {
                locks::commands::list(store, pattern.as_deref(), limit, json).await
            }
            Action::Inspect { key, json } => inspect::inspect(store, &key, json).await,
            Action::Release { key, force, yes } => release::release(store, &key, force, yes).await,
            Action::Doctor { json } => doctor::examine(store, json).await,
            #[cfg(feature = "top")]
            Action::Top(options) => top::top(store, &options).await,
            Action::Run(_) | Action::Completions(_) | Action::Man { .. } => Ok(exit::OK),
        }
    })
}
