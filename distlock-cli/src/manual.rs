//! `distlock completions` and `distlock man`.

use clap::Command;

use crate::args;
use crate::exit;
use crate::failure::Failure;
use crate::messages;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::program(), "distlock", &mut script);
    messages::print(&String::from_utf8_lossy(&script))?;
    Ok(exit::OK)
}

/// The page of the program, or of one of its commands.
pub(crate) fn man(command: Option<&str>) -> Result<u8, Failure> {
    let mut program = args::program();
    program.build();
    let page: Command = match command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            let found = found.ok_or_else(|| {
                Failure::usage(format!("no command {name:?}; `distlock help` lists them"))
            })?;
            found.display_name(format!("distlock-{name}"))
        }
    };
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(page).render(&mut text);
    rendered.map_err(Failure::own)?;
    messages::print(&String::from_utf8_lossy(&text))?;
    Ok(exit::OK)
}
