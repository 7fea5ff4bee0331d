use std::{hint, thread};

use super::*;

/// Each of this many tokens is used by two threads at once, in this many rounds. A wrong order shows in some of a thousand.
const OWNERS: usize = 2_000;
const ROUNDS: usize = 50;
const TTL: Duration = Duration::from_secs(1);

fn now() -> Moment {
    Moment::from_nanos(1)
}

fn owner() -> Owner {
    let name = LockName::of_stored("shop:", "shop:lock:{a}").expect("a name");
    Owner::new(Arc::new(name), "process.1.s".to_owned(), Limit::ALONE)
}

/// Does both to each token at the same time, and returns the results.
fn at_once<A: Send, B>(
    owners: &[Owner],
    one: impl Fn(&Owner) -> A + Sync,
    other: impl Fn(&Owner) -> B,
) -> Vec<(A, B)> {
    let there = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let meet = |own: usize, at: usize| {
        there[own].store(at + 1, Ordering::SeqCst);
        let mut looks = 0_u32;
        while there[1 - own].load(Ordering::SeqCst) <= at {
            looks += 1;
            if looks.is_multiple_of(1_000) {
                thread::yield_now();
            }
        }
        // Sometimes one thread is ahead and sometimes the other, by all of these pauses.
        let pause = [at % 32, at / 32 % 32][own];
        (0..pause).for_each(|_| hint::spin_loop());
    };
    let all = |own| owners.iter().enumerate().inspect(move |(at, _)| meet(own, *at));
    thread::scope(|both| {
        let ones = both.spawn(|| all(0).map(|(_, owner)| one(owner)).collect::<Vec<_>>());
        let others: Vec<_> = all(1).map(|(_, owner)| other(owner)).collect();
        ones.join().expect("no panic").into_iter().zip(others).collect()
    })
}

/// A release skips a token of which the store has nothing. It must not do so while a grant is being noted.
#[test]
fn what_was_given_is_seen_at_every_moment() {
    for round in 0..ROUNDS {
        let owners: Vec<_> = (0..OWNERS).map(|_| owner()).collect();
        owners.iter().for_each(|owner| owner.sending(now(), TTL, 1));
        let look = |owner: &Owner| (0..20).all(|_| owner.may_be_stored());
        let both = at_once(&owners, |owner| owner.answered_yes(1), look);
        let missed = both.iter().filter(|((), seen)| !seen).count();
        assert_eq!(missed, 0, "given, and passed over in round {round}");
    }
}

/// R7: a release skips a token for which nothing was sent, and nothing is sent for it after the release.
#[test]
fn what_is_sent_while_a_release_begins_is_seen_by_it() {
    for round in 0..ROUNDS {
        let owners: Vec<_> = (0..OWNERS).map(|_| owner()).collect();
        let release = |owner: &Owner| {
            owner.retire();
            owner.may_be_stored()
        };
        let both = at_once(&owners, |owner| owner.may_send(now(), TTL, 1), release);
        let missed = both.iter().filter(|(sent, seen)| *sent && !seen).count();
        assert_eq!(missed, 0, "sent, and passed over in round {round}");
    }
}

#[test]
fn a_release_is_behind_what_died_with_closed_connections_only() {
    let (owner, now, ttl) = (owner(), now(), TTL);
    assert!(owner.is_behind(9, &(9..9)), "nothing was sent");
    owner.sending(now, ttl, 3);
    assert!(owner.is_behind(3, &(1..1)), "the release goes over the same connection");
    assert!(!owner.is_behind(5, &(4..5)) && owner.is_behind(5, &(3..5)));
    owner.sending(now, ttl, 7);
    owner.sending(now, ttl, 8);
    owner.answered(8);
    assert!(owner.is_behind(8, &(1..8)));
    assert!(!owner.is_behind(8, &(4..8)), "3 was a connection to another server");
    assert!(!owner.is_behind(8, &(1..7)));
}
