//! The program `distlock`: runs commands under locks, and shows which locks are held.

#[cfg(not(unix))]
compile_error!("the program distlock needs Unix: signals, process groups and sockets");

mod args;
mod doctor;
mod exit;
mod locks;
mod messages;
mod run;
mod store;
mod text;
#[cfg(feature = "top")]
mod top;

use std::process::ExitCode;

// The runtime's hidden interface for operators.
use distlock::__admin as admin;

use args::{Action, Invocation};
use exit::Failure;
use store::StoreConfig;

fn main() -> ExitCode {
    if let Some(code) = run::guard() {
        return code.into();
    }
    let code = match args::parse() {
        Ok(invocation) => carry_out(invocation),
        Err(code) => code,
    };
    // Not by returning, because that would wait for threads that still wait for a store.
    std::process::exit(code.into())
}

fn carry_out(Invocation { store, action }: Invocation) -> u8 {
    if let Some(url) = &store.url {
        store::hide_password(url);
    }
    let outcome = match action {
        Action::Run(options) => return run::run(&store, &options),
        Action::Completions(shell) => args::print_completions(shell),
        Action::Man { command } => args::print_manual(command.as_deref()),
        action => StoreConfig::resolve(&store).and_then(|store| query(&store, action)),
    };
    outcome.unwrap_or_else(|Failure { text, code }| {
        messages::plain(&text);
        code
    })
}

/// Runs a command that asks the store.
fn query(store: &StoreConfig, action: Action) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::internal)?;
    runtime.block_on(async {
        match action {
            Action::Ls { pattern, limit, json } => {
                locks::commands::list(store, pattern.as_deref(), limit, json).await
            }
            Action::Inspect { key, json } => locks::commands::inspect(store, &key, json).await,
            Action::Release { key, force, yes } => {
                locks::commands::release(store, &key, force, yes).await
            }
            Action::Doctor { json } => doctor::examine(store, json).await,
            #[cfg(feature = "top")]
            Action::Top(options) => top::top(store, &options).await,
            Action::Run(_) | Action::Completions(_) | Action::Man { .. } => Ok(exit::OK),
        }
    })
}
