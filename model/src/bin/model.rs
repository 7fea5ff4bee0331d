//! tmp
#![allow(clippy::print_stdout)]
use std::num::NonZeroUsize;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let most = args.get(1).and_then(|n| n.parse().ok()).and_then(NonZeroUsize::new);
    for s in distlock_model::scenarios() {
        if args.first().is_some_and(|n| n != s.name && n != "all") {
            continue;
        }
        let o = distlock_model::check(&s, None, most);
        println!(
            "{:12} {:9} states {:9} unique depth {:3} {:?} {}",
            s.name,
            o.states,
            o.unique,
            o.depth,
            o.took,
            if o.exhausted { "exhausted" } else { "cut" }
        );
        if let Some(v) = o.violation {
            println!("{:?} in {}\n{}", v.invariant, v.steps, v.trace);
        }
    }
}
