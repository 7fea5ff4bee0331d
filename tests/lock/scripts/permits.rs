//! Permits: each token is let in while fewer than its own number hold the lock.

use super::{PROCESSES, about, bench, lasting};

#[test]
fn no_more_hold_the_lock_than_there_are_permits() {
    let mut bench = bench();
    let p = PROCESSES.map(|process| bench.token(process, "3"));
    for (token, ttl) in p.iter().zip([50_000, 60_000, 70_000]) {
        assert!(bench.ask(token, lasting(ttl)).is_granted());
    }
    let waits = bench.acquire(&p[3]);
    assert_eq!(waits.place().1, 0);
    assert!((40_000..=50_000).contains(&waits.remaining()), "until the first of them ends");
    for at in 0..3 {
        assert_eq!(bench.heard(PROCESSES[at]), about("s", &p[at]), "all who hold it are told");
    }
    assert_eq!(bench.acquire(&p[4]).place().1, 1);
    assert_eq!(bench.heard("d"), about("s", &p[3]));
    let late = bench.token("a", "3");
    assert!(!bench.attempt(&late).is_granted());
    assert_eq!((bench.waiting().len(), bench.together().len()), (2, 3));

    assert_eq!(bench.release(&p[1]), (1, vec![p[3].clone()]), "one goes, one comes");
    assert_eq!(bench.heard("d"), about("g", &p[3]));
    assert_eq!(
        bench.heard("e"),
        [""; 0],
        "there is nothing for the next one, and it is not called to look"
    );
    assert_eq!(bench.together().len(), 3);
    assert_eq!(bench.release(&p[3]), (1, vec![p[4].clone()]), "one that nobody wants goes on");
    assert!(bench.acquire(&p[4]).is_granted());
    for at in [0, 2] {
        assert_eq!(bench.release(&p[at]), (1, vec![]));
    }
    assert_eq!(bench.together(), [p[4].clone()]);
    bench.ends_with_the_last();
}

#[test]
fn a_dead_ones_permit_goes_to_the_first_and_not_to_whoever_comes() {
    let mut bench = bench();
    let p = PROCESSES.map(|process| bench.token(process, "2"));
    bench.ask(&p[0], lasting(20));
    bench.acquire(&p[1]);
    bench.acquire(&p[2]);
    bench.until_ended(&p[0]);
    assert_eq!(bench.acquire(&p[3]).place().1, 0);
    let mut together = bench.together();
    together.sort();
    assert_eq!(together, p[1..3]);
    bench.ends_with_the_last();
}

#[test]
fn a_newcomer_gets_a_dead_ones_permit_if_nobody_waits() {
    let mut bench = bench();
    let p = PROCESSES.map(|process| bench.token(process, "2"));
    bench.ask(&p[0], lasting(20));
    bench.acquire(&p[1]);
    bench.until_ended(&p[0]);
    assert!(bench.attempt(&p[2]).is_granted());
    assert!(!bench.attempt(&p[0]).is_granted(), "it lost its place");
    assert_eq!(bench.renew(&p[0], 90_000), 0);
}

#[test]
fn all_permits_are_given_at_once() {
    let mut bench = bench();
    let mut tokens = |limit| PROCESSES.map(|process| bench.token(process, limit));
    let (gone, next) = (tokens("3"), tokens("3"));
    for token in &gone[..3] {
        bench.ask(token, lasting(20));
    }
    let alone = bench.token("a", "");
    bench.until_expired();
    assert!(bench.set(&alone, 90_000));
    bench.acquire_all(&next);
    assert_eq!(bench.release(&alone), (1, next[..3].to_vec()));
    assert_eq!(bench.waiting(), next[3..]);
    bench.clear();
    // Also by the release of one whose lease has ended with all the others.
    for token in &gone[..3] {
        bench.ask(token, lasting(20));
    }
    bench.until_expired();
    for (at, token) in next.iter().enumerate() {
        bench.queue::<u64>("ZADD", &[&at.to_string(), token]);
    }
    assert_eq!(bench.release(&gone[0]), (0, next[..3].to_vec()));
}

#[test]
fn each_counts_by_its_own_number() {
    let mut bench = bench();
    let many = PROCESSES.map(|process| bench.token(process, "5"));
    let few = bench.token("a", "3");
    many.iter().for_each(|token| assert!(bench.acquire(token).is_granted()));
    assert!(!bench.acquire(&few).is_granted());
    assert_eq!(bench.release(&many[0]), (1, vec![]));
    assert_eq!(bench.release(&many[1]), (1, vec![]));
    assert_eq!(bench.release(&many[2]), (1, vec![few]), "there is room by its own");
}

#[test]
fn one_that_waits_for_several_to_end_learns_that_it_is_earlier() {
    let mut bench = bench();
    let many = ["a", "b", "c", "d"].map(|process| bench.token(process, "5"));
    let few = bench.token("e", "2");
    for (token, ttl) in many.iter().zip([30_000, 60_000, 90_000, 95_000]) {
        bench.ask(token, lasting(ttl));
    }
    let remaining = bench.acquire(&few).remaining();
    assert!((80_000..=90_000).contains(&remaining), "three have to end: {remaining}");
    bench.hush();
    bench.release(&many[0]);
    assert_eq!(bench.heard("e"), [""; 0], "two have to, and the second ends as before");
    bench.release(&many[3]);
    assert_eq!(bench.heard("e"), about("g", &few));
    assert!(bench.acquire(&few).remaining() <= 60_000);
}

#[test]
fn one_that_is_alone_waits_for_all_permits_and_is_not_passed() {
    let mut bench = bench();
    let p = ["a", "b", "c"].map(|process| bench.token(process, "3"));
    let alone = bench.token("d", "");
    bench.acquire_all(&p[..2]);
    assert!(!bench.set(&alone, 90_000));
    assert!(!bench.acquire(&alone).is_granted());
    assert!(!bench.acquire(&p[2]).is_granted(), "though there is a permit");
    assert_eq!(bench.release(&p[0]), (1, vec![]));
    assert_eq!(bench.release(&p[1]), (1, vec![alone.clone()]));
    assert!(bench.acquire(&alone).is_granted());
    assert_eq!(bench.release(&alone), (1, vec![p[2].clone()]));
}

#[test]
fn who_reads_takes_a_permit_and_waits_for_none() {
    let mut bench = bench();
    let [a, b] = ["a", "b"].map(|process| bench.token(process, "r"));
    let p = ["c", "d"].map(|process| bench.token(process, "2"));
    bench.acquire(&a);
    assert!(bench.acquire(&p[0]).is_granted(), "the second of two");
    assert!(bench.acquire(&b).is_granted(), "any number");
    assert!(!bench.acquire(&p[1]).is_granted());
    assert_eq!(bench.release(&a), (1, vec![]));
    assert_eq!(bench.release(&b), (1, vec![p[1].clone()]));
}

#[test]
fn a_permit_that_lapsed_is_given_on_by_the_next_release() {
    let mut bench = bench();
    let holders = ["a", "b"].map(|process| bench.token(process, "2"));
    let dead = bench.token_with("c", "2", 20, 's');
    let next = bench.token("d", "2");
    bench.acquire_all(&holders);
    bench.acquire_all([&dead, &next]);
    assert_eq!(bench.release(&holders[0]), (1, vec![dead.clone()]));
    bench.until_ended(&dead);
    assert_eq!(bench.release(&holders[0]), (0, vec![next]), "the same release once more");
}
