//! Long runs of the model and of the simulator, with figures.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures are its answer")]

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use distlock_model::{Mutant, Outcome, Scenario, check, most_memory, quorum, scenarios, simulate};

/// Different states of each larger scenario: 10⁸ in all, in some 8 GB.
const MOST: usize = 4_000_000;

const USAGE: &str = "usage: model [COMMAND] [--states N] [--steps N] [--seed N] [--threads N]

long [SCENARIO]              larger scenarios, up to 4,000,000 different states of each (or --states)
short [SCENARIO]             what the tests run
soak                         random histories from a seed on (100,000,000 steps, or --steps)
quorum [SCENARIO]            servers that vote, up to 4,000,000 different states of each scenario (or --states)
quorum-soak                  random histories of the same (100,000,000 steps, or --steps)
mutants                      what catches each broken script, in how many steps
mutant MUTANT [SCENARIO]     one of them in every scenario, or in one with the way there";

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args().skip(1).collect();
    let most = taken(&mut args, "--states").and_then(|most| NonZeroUsize::new(most as usize));
    let steps = taken(&mut args, "--steps").unwrap_or(100_000_000);
    let seed = taken(&mut args, "--seed").unwrap_or(1);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = taken(&mut args, "--threads").map_or(cores, |threads| threads as usize);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] | ["long"] => hold(&larger(), most.or(NonZeroUsize::new(MOST))),
        ["long", ref name @ ..] => {
            hold(&named(larger(), &name.join(" ")), most.or(NonZeroUsize::new(MOST)))
        }
        ["short"] => hold(&scenarios(), most),
        ["short", ref name @ ..] => hold(&named(scenarios(), &name.join(" ")), most),
        ["soak"] => soak(seed, steps, threads),
        ["quorum", ref name @ ..] => votes(&name.join(" "), most.map_or(MOST, NonZeroUsize::get)),
        ["quorum-soak"] => votes_at_random(seed, steps as usize),
        ["mutants"] => mutants(),
        ["mutant", name] => mutant(name, &scenarios(), most),
        ["mutant", name, ref scenario @ ..] => {
            mutant(name, &named(scenarios(), &scenario.join(" ")), most)
        }
        _ => usage(),
    }
}

/// Takes an option with its number out of the arguments.
fn taken(args: &mut Vec<String>, name: &str) -> Option<u64> {
    let at = args.iter().position(|arg| arg == name)?;
    args.drain(at..(at + 2).min(args.len())).nth(1)?.parse().ok()
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

fn code(holds: bool) -> ExitCode {
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs scenarios as they are.
fn hold(list: &[Scenario], most: Option<NonZeroUsize>) -> ExitCode {
    if list.is_empty() {
        return usage();
    }
    let (mut holds, mut all, mut time) = (true, 0, Duration::ZERO);
    println!("| scenario | about | states | steps | depth | s | |");
    println!("|---|---|---|---|---|---|---|");
    for scenario in list {
        let Outcome { steps, states, depth, took, exhausted, violation } =
            check(scenario, None, most);
        let (name, about, seconds) = (scenario.name, scenario.about, took.as_secs_f64());
        let end = match (&violation, exhausted) {
            (Some(violation), _) => violation.invariant.name(),
            (None, true) => "exhausted",
            (None, false) => "cut",
        };
        println!("| {name} | {about} | {states} | {steps} | {depth} | {seconds:.1} | {end} |");
        if let Some(violation) = violation {
            println!("{}", violation.trace);
            holds = false;
        }
        (all, time) = (all + states, time + took);
    }
    let (seconds, memory) = (time.as_secs_f64(), most_memory());
    println!("\n{all} different states, {seconds:.0} s, at most {memory} MiB");
    code(holds)
}

/// Random histories.
fn soak(seed: u64, steps: u64, threads: usize) -> ExitCode {
    let outcome = simulate(seed, steps, threads);
    let (histories, steps, bodies) = (outcome.histories, outcome.steps, outcome.bodies);
    let (seconds, memory) = (outcome.took.as_secs_f64(), most_memory());
    let rate = steps as f64 / seconds;
    println!("{steps} steps of {histories} histories from seed {seed}, {bodies} bodies");
    println!("{seconds:.0} s on {threads} threads, {rate:.0} steps/s, at most {memory} MiB");
    if let Some(failure) = &outcome.failure {
        println!("{failure}");
    }
    code(outcome.failure.is_none())
}

/// Scenarios of a quorum.
fn votes(name: &str, most: usize) -> ExitCode {
    let (mut holds, mut all, mut time, mut found) = (true, 0, Duration::ZERO, false);
    println!("| scenario | about | states | steps | s | |");
    println!("|---|---|---|---|---|---|");
    for scenario in quorum::scenarios() {
        if !name.is_empty() && scenario.name != name {
            continue;
        }
        let quorum::Outcome { states, steps, exhausted, took, violation, .. } =
            quorum::check(&scenario, most);
        let (name, about, seconds) = (scenario.name, scenario.about, took.as_secs_f64());
        let end = match &violation {
            Some((invariant, _)) => invariant.name(),
            None if exhausted => "exhausted",
            None => "cut",
        };
        println!("| {name} | {about} | {states} | {steps} | {seconds:.1} | {end} |");
        if let Some((_, trace)) = &violation {
            trace.iter().for_each(|step| println!("{step}"));
            holds = false;
        }
        (all, time, found) = (all + states, time + took, true);
    }
    let (seconds, memory) = (time.as_secs_f64(), most_memory());
    println!("\n{all} different states, {seconds:.0} s, at most {memory} MiB");
    if found { code(holds) } else { usage() }
}

/// Random histories of a quorum.
fn votes_at_random(seed: u64, steps: usize) -> ExitCode {
    let quorum::Outcome { states, bodies, steps, took, violation, .. } =
        quorum::simulate(seed, steps, None);
    let seconds = took.as_secs_f64();
    println!(
        "{steps} steps of {states} histories from seed {seed}, {bodies} bodies, {seconds:.0} s"
    );
    if let Some((invariant, trace)) = &violation {
        let (seed, name) = (seed + states as u64 - 1, invariant.name());
        println!("seed {seed}: {name} after {steps} steps, in {}:", trace.len());
        trace.iter().for_each(|step| println!("{step}"));
    }
    code(violation.is_none())
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
