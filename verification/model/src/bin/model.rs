//! Long runs of the model, with figures.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures are its answer")]

use std::num::NonZeroUsize;
use std::process::ExitCode;

use distlock_model::{Mutant, Outcome, Scenario, check, scenarios};

const USAGE: &str = "usage: model [COMMAND] [--states N]

short [SCENARIO]             what the tests run
long [SCENARIO]              with more calls, up to 5,000,000 states of each scenario
mutants                      what catches each broken rule, in how many steps
mutant MUTANT [SCENARIO]     one of them in every scenario, or in one with the way there";

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args().skip(1).collect();
    let most = args.iter().position(|arg| arg == "--states").and_then(|place| {
        let most = args.drain(place..).nth(1)?;
        most.parse().ok().and_then(NonZeroUsize::new)
    });
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] | ["long"] => hold(&larger(), most.or(NonZeroUsize::new(5_000_000))),
        ["long", name] => hold(&named(larger(), name), most.or(NonZeroUsize::new(5_000_000))),
        ["short"] => hold(&scenarios(), most),
        ["short", name] => hold(&named(scenarios(), name), most),
        ["mutants"] => mutants(),
        ["mutant", name] => mutant(name, &scenarios(), most),
        ["mutant", name, scenario] => mutant(name, &named(scenarios(), scenario), most),
        _ => usage(),
    }
}

fn larger() -> Vec<Scenario> {
    scenarios().iter().map(Scenario::larger).collect()
}

fn named(list: Vec<Scenario>, name: &str) -> Vec<Scenario> {
    list.into_iter().filter(|scenario| scenario.name == name).collect()
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// Runs scenarios as they are.
fn hold(list: &[Scenario], most: Option<NonZeroUsize>) -> ExitCode {
    if list.is_empty() {
        return usage();
    }
    let mut holds = true;
    println!("| scenario | about | states | different | depth | s | |");
    println!("|---|---|---|---|---|---|---|");
    for scenario in list {
        let Outcome { states, unique, depth, took, exhausted, violation } =
            check(scenario, None, most);
        let (name, about, seconds) = (scenario.name, scenario.about, took.as_secs_f64());
        let end = match (&violation, exhausted) {
            (Some(violation), _) => violation.invariant.name(),
            (None, true) => "exhausted",
            (None, false) => "cut",
        };
        println!("| {name} | {about} | {states} | {unique} | {depth} | {seconds:.1} | {end} |");
        if let Some(violation) = violation {
            println!("{}", violation.trace);
            holds = false;
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What catches each mutant.
fn mutants() -> ExitCode {
    let mut all = true;
    println!("| mutant | breaks | caught by | in | steps | states |");
    println!("|---|---|---|---|---|---|");
    for (mutant, name, _) in Mutant::CAUGHT {
        let text =
            Mutant::ALL.iter().find(|(other, _)| other == mutant).map(|(_, text)| text.trim());
        let text = text.unwrap_or_default();
        for scenario in named(scenarios(), name) {
            let outcome = check(&scenario, Some(*mutant), None);
            let states = outcome.states;
            match outcome.violation {
                Some(violation) => {
                    let (invariant, steps) = (violation.invariant.name(), violation.steps);
                    println!(
                        "| `{mutant:?}` | {text} | {invariant} | {name} | {steps} | {states} |"
                    );
                }
                None => {
                    println!("| `{mutant:?}` | {text} | nothing | {name} | | {states} |");
                    all = false;
                }
            }
        }
    }
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One mutant in many scenarios; in one of them: how.
fn mutant(name: &str, list: &[Scenario], most: Option<NonZeroUsize>) -> ExitCode {
    let mutant = Mutant::ALL.iter().find(|(mutant, _)| format!("{mutant:?}") == name);
    let Some((mutant, text)) = mutant.filter(|_| !list.is_empty()) else { return usage() };
    println!("{mutant:?}:{text}");
    for scenario in list {
        let outcome = check(scenario, Some(*mutant), most);
        let end = match &outcome.violation {
            Some(violation) => {
                format!("{} in {} steps", violation.invariant.name(), violation.steps)
            }
            None if outcome.exhausted => "survives".to_owned(),
            None => "survives so far".to_owned(),
        };
        println!("  {}: {end}, {} states", scenario.name, outcome.states);
        if let (Some(violation), [_]) = (outcome.violation, list) {
            println!("{}", violation.trace);
        }
    }
    ExitCode::SUCCESS
}
