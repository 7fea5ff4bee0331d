//! Tokens that have the lock alone.

use distlock_testkit::{Args, Said, wait_until};

use super::{about, bench, from, lasting};

#[test]
fn nobody_waits() {
    let mut bench = bench();
    let (one, other) = (bench.token("a", ""), bench.token("b", ""));
    let fence = bench.acquire(&one).fence();
    assert_eq!(bench.alone().as_ref(), Some(&one));
    assert!(bench.lives() > 90_000);
    assert_eq!(bench.release(&other), (0, vec![]), "another one's");
    assert_eq!(bench.release(&one), (1, vec![]));
    assert_eq!(bench.release(&one), (0, vec![]), "the same again");
    assert!(bench.set(&other, 100_000));
    assert!(bench.acquire(&other).fence() > fence, "a confirmation draws as well");
    assert_eq!(bench.release(&other), (1, vec![]));
    assert!(bench.waiting().is_empty() && bench.lives() == -2);
}

#[test]
fn whoever_waits_is_let_in_in_order() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, ""));
    assert!(bench.set(&a, 100_000));
    let first = bench.acquire(&b);
    let (ticket, rank, behind) = first.place();
    assert_eq!((rank, behind), (0, 0));
    assert!((90_001..=100_000).contains(&first.remaining()));
    assert_eq!(bench.heard("a"), about("s", &a));
    let (later, rank, _) = bench.acquire(&c).place();
    assert!(later > ticket && rank == 1);
    assert_eq!(bench.heard("b"), about("s", &b), "the last one but itself");
    assert_eq!(bench.heard("a"), [""; 0]);
    assert_eq!(bench.ask(&b, from(ticket)).place(), (ticket, 0, 1), "a look keeps the place");
    assert_eq!(bench.acquire(&b).place().0, ticket, "also of one that does not know it");
    assert_eq!(bench.heard("a"), [(); 2].map(|()| format!("s {a}")), "the first one tells again");

    assert_eq!(bench.release(&a), (1, vec![b.clone()]));
    assert_eq!(bench.heard("b"), about("g", &b));
    assert_eq!(bench.alone().as_ref(), Some(&b));
    assert!((1..=10_000).contains(&bench.lives()), "for its claim");
    assert!(!bench.set(&a, 1), "it is not free for a moment");
    let fence = bench.ask(&b, from(ticket)).fence();
    assert!(fence > later && bench.lives() > 90_000);
    assert!(bench.ask(&b, from(ticket)).fence() > fence, "confirmed twice");
    assert_eq!(bench.waiting(), [c.as_str()]);
    assert_eq!(bench.release(&b), (1, vec![c.clone()]));
    assert_eq!(bench.release(&c), (1, vec![]), "freed without having been used");
}

#[test]
fn a_lease_is_extended_and_never_shortened_or_made() {
    let mut bench = bench();
    let (a, b) = (bench.token("a", ""), bench.token("b", ""));
    assert!(bench.set(&a, 50_000));
    assert_eq!((bench.renew(&a, 90_000), bench.renew(&b, 90_000)), (1, 0));
    assert!(bench.lives() > 80_000);
    bench.renew(&a, 10);
    assert!(bench.lives() > 80_000);
    bench.acquire(&b);
    assert_eq!(bench.renew(&a, 10), 2, "others wait");
    let fence = bench.renew_and_draw(&a, 10);
    bench.release(&a);
    assert!(bench.acquire(&b).fence() > fence);
    bench.release(&b);
    assert_eq!(bench.renew(&b, 90_000), 0);
    assert_eq!(bench.lives(), -2);
}

#[test]
fn counter_values_that_are_drawn_together_follow_each_other_and_are_nobody_elses() {
    let mut bench = bench();
    for limit in ["", "3"] {
        let [a, b] = ["a", "b"].map(|process| bench.token(process, limit));
        // Ahead of the time, so that it is counted and not read.
        let now = bench.raise(0).1;
        bench.raise(now + 3_600_000_000);
        let first = bench.acquire(&a).fence();
        assert_eq!(bench.renew_and_draw_several(&a, 10, 64), first + 64);
        assert_eq!(bench.renew_and_draw_several(&a, 10, 1), first + 65);
        bench.release(&a);
        assert_eq!(bench.acquire(&b).fence(), first + 66);
        bench.release(&b);
        bench.raw::<()>(&redis::cmd("FLUSHALL")).expect("flushed");
        // None of them is below the time, where the counter is.
        bench.acquire(&a);
        let (drawn, now) = (bench.renew_and_draw_several(&a, 10, 1_000_000), bench.raise(0).1);
        assert!(
            drawn >= now - 60_000_000 + 1_000_000 && drawn - 1_000_000 <= now,
            "{drawn} at {now}"
        );
        bench.clear();
        bench.raw::<()>(&redis::cmd("FLUSHALL")).expect("flushed");
    }
}

#[test]
fn who_gives_up_goes() {
    let mut bench = bench();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|process| bench.token(process, ""));
    bench.acquire_all([&a, &b, &c, &d]);
    assert_eq!(bench.release(&c), (0, vec![]), "out of the queue");
    assert_eq!(bench.waiting(), [b.clone(), d.clone()]);
    assert_eq!(bench.release(&a), (1, vec![b.clone()]));
    bench.hush();
    assert_eq!(bench.release(&b), (1, vec![d.clone()]), "a reservation that nobody wants");
    assert_eq!(bench.heard("d"), about("g", &d));
}

#[test]
fn an_answer_says_whether_a_place_is_new_and_whether_others_wait() {
    let mut bench = bench();
    let is_new = |said| matches!(said, Said::Taken { added: true, .. });
    let is_contended = |said| match said {
        Said::Granted { contended, .. } => contended,
        other => panic!("not granted: {other:?}"),
    };
    for limit in ["", "r", "3"] {
        let (a, b) = (bench.token("a", ""), bench.token("b", limit));
        let c = bench.token("c", "");
        assert!(!is_contended(bench.acquire(&a)));
        let first = bench.acquire(&b);
        assert!(is_new(first));
        assert!(!is_new(bench.acquire(&b)) && !is_new(bench.ask(&b, from(first.place().0))));
        assert!(is_new(bench.acquire(&c)));
        bench.release(&a);
        assert!(is_contended(bench.acquire(&b)) && is_contended(bench.acquire(&b)));
        bench.release(&b);
        assert!(!is_contended(bench.acquire(&c)));
        bench.release(&c);
    }
}

#[test]
fn the_counter_begins_at_the_servers_time() {
    let mut bench = bench();
    let (counter, now) = bench.raise(0);
    // In µs: a year of this century.
    assert!(counter == now && now > 1_000_000_000_000_000, "{counter} at {now}");
    let a = bench.token("a", "");
    assert!(bench.acquire(&a).fence() > counter);
}

#[test]
fn a_reservation_that_lapses_is_repaired_by_whoever_releases() {
    let mut bench = bench();
    let [a, c] = ["a", "c"].map(|process| bench.token(process, ""));
    let b = bench.token_with("b", "", 1, 's');
    bench.acquire_all([&a, &b, &c]);
    assert_eq!(bench.release(&a), (1, vec![b.clone()]));
    bench.until_expired();
    bench.hush();
    assert_eq!(bench.release(&a), (0, vec![c.clone()]), "the same release once more");
    assert_eq!(bench.heard("c"), about("g", &c));
    assert!(bench.acquire(&c).is_granted());
}

#[test]
fn one_that_has_lapsed_is_back_at_its_place() {
    let mut bench = bench();
    let [a, c] = ["a", "c"].map(|process| bench.token(process, ""));
    let b = bench.token_with("b", "", 1, 's');
    bench.acquire(&a);
    let (ticket, ..) = bench.acquire(&b).place();
    bench.acquire(&c);
    bench.release(&a);
    bench.until_expired();
    bench.release(&a);
    assert_eq!(bench.ask(&b, from(ticket)).place(), (ticket, 0, 0));
    assert_eq!(bench.release(&c), (1, vec![b]));
}

#[test]
fn an_old_ticket_is_an_old_place() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, ""));
    let old = bench.acquire(&a).fence();
    bench.acquire(&b);
    assert_eq!(bench.ask(&c, from(old)).place(), (old, 0, 1));
    assert_eq!(bench.release(&a), (1, vec![c.clone()]));
    let said = bench.ask(&c, Args { ttl: 50_000, ticket: old, ..Args::default() });
    assert!(matches!(said, Said::Granted { contended: true, .. }), "{said:?}");
    assert!((40_000..=50_000).contains(&bench.lives()));
}

#[test]
fn a_dead_process_is_skipped_and_may_come_back() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, ""));
    bench.acquire(&a);
    let (ticket, ..) = bench.acquire(&b).place();
    bench.acquire(&c);
    // A subscriber to everything is not the process of any waiter.
    let mut monitor = bench.server.eye();
    redis::cmd("PSUBSCRIBE").arg("*").exec(&mut monitor).expect("subscribed");
    bench.deafen("b");
    assert_eq!(bench.release(&a), (1, vec![c.clone()]));
    assert!(bench.acquire(&c).is_granted());
    bench.listen("b");
    assert_eq!(bench.ask(&b, from(ticket)).place(), (ticket, 0, 0));
    bench.deafen("b");
    assert_eq!(bench.release(&c), (1, vec![]));
    assert_eq!((bench.waiting().len(), bench.lives()), (0, -2));
    drop(monitor);
}

#[test]
fn a_process_that_polls_is_never_skipped() {
    let mut bench = bench();
    let (a, dead) = (bench.token("a", ""), bench.token("b", ""));
    let b = bench.token_with("nobody-listens", "", 10_000, 'n');
    bench.acquire_all([&a, &dead, &b]);
    bench.deafen("b");
    assert_eq!(bench.release(&a), (1, vec![b.clone()]), "past one that should listen");
    assert_eq!(bench.alone(), Some(b));
}

#[test]
fn after_an_expiry_a_newcomer_lets_the_first_one_in() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, ""));
    assert!(bench.set(&a, 100_000));
    bench.acquire(&b);
    bench.expire();
    bench.hush();
    assert_eq!(bench.acquire(&c).place().1, 0);
    assert_eq!(bench.alone().as_ref(), Some(&b));
    assert_eq!(bench.heard("b"), [format!("g {b}"), format!("s {b}")]);
    assert_eq!(bench.release(&b), (1, vec![c]));
}

#[test]
fn after_an_expiry_the_first_one_takes_it_with_a_look() {
    let mut bench = bench();
    let (a, b) = (bench.token("a", ""), bench.token("b", ""));
    assert!(bench.set(&a, 100_000));
    bench.acquire(&b);
    bench.expire();
    assert!(bench.acquire(&b).is_granted());
    assert!(bench.waiting().is_empty() && bench.lives() > 90_000);
}

#[test]
fn a_try_takes_a_free_lock_or_leaves_nothing() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, ""));
    assert!(bench.attempt(&a).is_granted());
    assert!(bench.attempt(&b).remaining() > 90_000);
    assert!(bench.waiting().is_empty());
    bench.renew(&a, 1);
    bench.clear();
    assert!(bench.set(&a, 100_000));
    bench.acquire(&b);
    bench.expire();
    assert!(!bench.attempt(&c).is_granted(), "another one is before it");
    assert_eq!(bench.alone().as_ref(), Some(&b), "and let in by it");
}

#[test]
fn a_lock_is_kept_after_its_end() {
    let mut bench = bench();
    let (a, b) = (bench.token("a", ""), bench.token("b", ""));
    bench.acquire(&a);
    assert_eq!(bench.keep(&a, 50_000), (2, vec![]));
    assert!((40_000..=50_000).contains(&bench.lives()));
    bench.acquire(&b);
    assert_eq!(bench.keep(&a, 50_000), (3, vec![]), "it says that others wait");
    assert!((40_000..=50_100).contains(&bench.lives()), "and lasts until it is released");
    assert_eq!(bench.alone().as_ref(), Some(&a));
    assert_eq!(bench.release(&a), (1, vec![b.clone()]));
    assert_eq!(bench.keep(&a, 50_000), (0, vec![]), "too late to keep it");
}

#[test]
fn queue_and_lock_never_stay() {
    let mut bench = bench();
    let (a, b) = (bench.token("a", ""), bench.token("b", ""));
    assert!(bench.acquire(&a).is_granted());
    let _ = bench.acquire(&b);
    let queue_ends: i64 = bench.queue("PTTL", &[]);
    assert!(queue_ends > 0 && bench.lives() > 0);
    bench.ask(&b, lasting(1));
    wait_until("it is asked again", || bench.queue::<i64>("PTTL", &[]) > 0);
}
