//! `cargo run --release -p distlock-model -- [SCENARIO | mutants [MUTANT [SCENARIO]]] [--states N]`
#![allow(clippy::print_stdout, reason = "figures are its answer")]

use std::num::NonZeroUsize;
use std::process::ExitCode;

use distlock_model::{Mutant, Scenario, check, scenarios};

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args().skip(1).collect();
    let most = args.iter().position(|arg| arg == "--states").and_then(|place| {
        let most = args.drain(place..).nth(1)?;
        most.parse().ok().and_then(NonZeroUsize::new)
    });
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => hold(|_| true, most),
        ["mutants"] => mutants(|_| true, |_| true, most),
        ["mutants", mutant] => mutants(|name| name == mutant, |_| true, most),
        ["mutants", mutant, scenario] => {
            mutants(|name| name == mutant, |name| name == scenario, most)
        }
        [scenario, ..] => hold(|name| name == scenario, most),
    }
}

/// Runs scenarios as they are.
fn hold(names: impl Fn(&str) -> bool, most: Option<NonZeroUsize>) -> ExitCode {
    let mut holds = true;
    println!("scenario          states    unique depth  seconds");
    for scenario in scenarios().iter().filter(|scenario| names(scenario.name)) {
        let outcome = check(scenario, None, most);
        let end = if outcome.exhausted { "exhausted" } else { "cut" };
        let (name, seconds) = (scenario.name, outcome.took.as_secs_f64());
        let (states, unique, depth) = (outcome.states, outcome.unique, outcome.depth);
        println!("{name:14} {states:9} {unique:9} {depth:5} {seconds:8.1} {end}");
        if let Some(violation) = outcome.violation {
            println!("{}\n{} is violated", violation.trace, violation.invariant.name());
            holds = false;
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs mutants in scenarios, and says what catches them where. With one of each: how.
fn mutants(
    mutants: impl Fn(&str) -> bool,
    names: impl Fn(&str) -> bool,
    most: Option<NonZeroUsize>,
) -> ExitCode {
    let all = scenarios();
    let chosen: Vec<&Scenario> = all.iter().filter(|scenario| names(scenario.name)).collect();
    for (mutant, _) in Mutant::ALL.iter().filter(|(mutant, _)| mutants(&format!("{mutant:?}"))) {
        println!("{mutant:?}");
        for scenario in &chosen {
            let outcome = check(scenario, Some(*mutant), most);
            let Some(violation) = outcome.violation else { continue };
            if chosen.len() == 1 {
                println!("{}", violation.trace);
            }
            let (invariant, steps) = (violation.invariant.name(), violation.steps);
            println!(
                "  {:14} {invariant} in {steps} steps, {} states",
                scenario.name, outcome.states
            );
        }
    }
    ExitCode::SUCCESS
}
