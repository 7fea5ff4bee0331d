//! Tokens that read: any number of them hold the lock together, and no writer with them.

use super::{about, bench, from, lasting};

#[test]
fn readers_hold_the_lock_together_until_the_last_of_them_ends() {
    let mut bench = bench();
    let [a, b] = ["a", "b"].map(|process| bench.token(process, "r"));
    let writer = bench.token("c", "");
    let first = bench.ask(&a, lasting(50_000)).fence();
    assert!((40_000..=50_000).contains(&bench.lives()));
    bench.ends_with_the_last();
    let second = bench.ask(&b, lasting(90_000)).fence();
    assert!(second > first);
    assert_eq!(bench.together(), [a.clone(), b.clone()]);
    bench.ends_with_the_last();
    assert!(bench.ask(&a, lasting(50_000)).fence() > second, "the same again is drawn anew");
    assert_eq!(bench.together().len(), 2, "and counts once");

    assert!(!bench.set(&writer, 100_000), "the bare fast path of one that is alone");
    assert_eq!(bench.together().len(), 2);
    assert_eq!(bench.release(&b), (1, vec![]));
    assert!(bench.lives() <= 50_000, "its end goes with it");
    bench.ends_with_the_last();
    assert_eq!(bench.release(&b), (0, vec![]), "the same again");
    assert_eq!(bench.release(&a), (1, vec![]));
    assert_eq!(bench.lives(), -2);
    assert!(bench.set(&writer, 100_000));
    assert_eq!(bench.release(&a), (0, vec![]), "nothing of another one's");
    assert_eq!(bench.alone(), Some(writer));
}

#[test]
fn a_reader_keeps_its_later_end() {
    let mut bench = bench();
    let a = bench.token("a", "r");
    bench.ask(&a, lasting(90_000));
    bench.ask(&a, lasting(10));
    assert!(bench.lives() > 80_000);
    bench.ends_with_the_last();
}

#[test]
fn a_readers_lease_is_extended_and_never_shortened_or_made() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, "r"));
    let writer = bench.token("d", "");
    let fence = bench.ask(&a, lasting(50_000)).fence();
    assert_eq!(bench.renew(&a, 90_000), 1);
    assert!(bench.lives() > 80_000);
    bench.ends_with_the_last();
    bench.renew(&a, 10);
    assert!(bench.lives() > 80_000);
    assert!(bench.renew_and_draw(&a, 10) > fence);
    assert_eq!((bench.renew(&b, 90_000), bench.renew(&writer, 90_000)), (0, 0));
    assert_eq!(bench.together(), [a.as_str()]);
    bench.acquire(&writer);
    assert_eq!(bench.renew(&a, 90_000), 2, "a writer waits");
    bench.clear();
    // One that has ended stays in the set until its place is needed. It has ended all the same.
    bench.ask(&b, lasting(20));
    bench.acquire(&c);
    bench.until_ended(&b);
    assert_eq!(bench.renew(&b, 90_000), 0);
    assert_eq!(bench.renew(&c, 90_000), 1);
    bench.clear();
    assert!(bench.set(&writer, 90_000));
    assert_eq!(bench.renew(&a, 90_000), 0, "alone is another one");
}

/// What is left of a release while the slot of the lock moves from one node to another.
/// Fault: FC8.
#[test]
fn a_reader_that_frees_the_lock_alone_takes_its_end_with_it() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, "r"));
    let writer = bench.token("d", "");
    bench.ask(&a, lasting(50_000));
    bench.ask(&b, lasting(90_000));
    assert!(!bench.free(&c) && !bench.free(&writer), "nothing of others");
    assert!(bench.lives() > 80_000);
    assert!(bench.free(&b));
    assert_eq!(bench.together(), [a.as_str()]);
    assert!(bench.lives() <= 50_000, "a lock without its last holder ends earlier");
    bench.ends_with_the_last();
    assert!(!bench.free(&b), "the same again");
    assert!(bench.free(&a));
    assert_eq!(bench.lives(), -2);
}

#[test]
fn a_writer_that_waits_keeps_later_readers_out() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, "r"));
    let (writer, late) = (bench.token("d", ""), bench.token("e", "r"));
    bench.acquire(&a);
    bench.acquire(&b);
    assert!(bench.attempt(&writer).remaining() > 90_000);
    assert!(bench.waiting().is_empty(), "a try leaves nothing");
    let waits = bench.acquire(&writer);
    assert!(waits.place().1 == 0 && waits.remaining() > 90_000);
    assert_eq!(bench.heard("a"), about("s", &a));
    assert_eq!(bench.heard("b"), about("s", &b), "all who hold it are told");
    assert_eq!(bench.acquire(&c).place().1, 1);
    assert_eq!(bench.heard("d"), about("s", &writer));
    assert!(!bench.attempt(&late).is_granted(), "nor does a try pass it");
    assert_eq!(bench.together().len(), 2);

    assert_eq!(bench.release(&a), (1, vec![]));
    assert_eq!(bench.release(&b), (1, vec![writer.clone()]));
    assert_eq!(bench.heard("d"), about("g", &writer));
    assert_eq!(bench.alone(), Some(writer));
    assert!((1..=10_000).contains(&bench.lives()), "for its claim");
}

#[test]
fn readers_in_a_row_are_let_in_together() {
    let mut bench = bench();
    let [a, b] = ["a", "b"].map(|process| bench.token(process, "r"));
    let [first, last] = ["c", "d"].map(|process| bench.token(process, ""));
    let far = bench.token("e", "r");
    let alone = bench.acquire(&first).fence();
    bench.acquire_all([&a, &b, &last, &far]);
    bench.hush();
    assert_eq!(bench.release(&first), (1, vec![a.clone(), b.clone()]));
    assert_eq!(bench.together(), [a.clone(), b.clone()]);
    assert!((1..=10_000).contains(&bench.lives()), "for their claims");
    bench.ends_with_the_last();
    assert_eq!(bench.heard("a"), about("g", &a));
    assert_eq!(bench.heard("b"), about("g", &b));
    assert_eq!(bench.waiting(), [last.clone(), far.clone()], "not those behind a writer");
    let read = bench.acquire(&a).fence();
    assert!(read > alone && bench.lives() > 90_000);
    bench.ends_with_the_last();
    assert_eq!(bench.release(&a), (1, vec![]));
    assert_eq!(bench.release(&b), (1, vec![last.clone()]), "one that has not confirmed");
    assert!(bench.acquire(&last).fence() > read);
    assert_eq!(bench.release(&last), (1, vec![far]));
}

#[test]
fn only_who_does_not_read_seals_readers() {
    let mut bench = bench();
    let holder = bench.token("a", "");
    let [b, c] = ["b", "c"].map(|process| bench.token(process, "r"));
    let (writer, reader) = (bench.token("d", ""), bench.token("e", "r"));
    bench.acquire(&holder);
    let (ticket, ..) = bench.acquire(&b).place();
    bench.hush();
    bench.acquire(&c);
    assert_eq!(bench.heard("b"), [""; 0], "more may join a reader");
    assert_eq!(bench.acquire(&b).place(), (ticket, 0, 0), "it is not told of another reader");
    bench.hush();
    bench.acquire(&writer);
    assert_eq!(bench.heard("b"), about("s", &b));
    assert_eq!(bench.heard("c"), about("s", &c), "the whole row");
    assert_eq!(bench.heard("a"), [""; 0]);
    assert_eq!(bench.acquire(&b).place(), (ticket, 0, 1), "a look says so as well");
    bench.hush();
    bench.acquire(&reader);
    assert_eq!(bench.heard("d"), about("s", &writer));
    assert_eq!(bench.heard("b"), [""; 0]);
    let last = bench.token("a", "");
    bench.acquire(&last);
    assert_eq!(bench.heard("e"), about("s", &reader));
    assert_eq!(bench.heard("d"), [""; 0], "the row ends at a writer");
    assert_eq!(bench.heard("b"), [""; 0]);
}

#[test]
fn a_readers_reservation_that_lapsed_counts_until_somebody_looks() {
    let mut bench = bench();
    let (holder, writer) = (bench.token("a", ""), bench.token("d", ""));
    let (late, reader) = (bench.token_with("b", "r", 1, 's'), bench.token("c", "r"));
    bench.acquire(&holder);
    let (ticket, ..) = bench.acquire(&late).place();
    bench.acquire_all([&reader, &writer]);
    assert_eq!(bench.release(&holder), (1, vec![late.clone(), reader.clone()]));
    assert!(bench.acquire(&reader).is_granted());
    bench.until_ended(&late);
    assert_eq!(bench.together().len(), 2);
    assert_eq!(bench.acquire(&late).place().1, 1, "as one that has just come");
    assert_eq!(bench.together(), [reader.as_str()]);
    assert!(bench.acquire(&writer).remaining() > 90_000, "one reads");
    assert_eq!(bench.release(&late), (0, vec![]));
    assert!(bench.ask(&late, from(ticket)).is_granted(), "from its old place");
    assert_eq!(bench.release(&reader), (1, vec![]));
    assert_eq!(bench.release(&late), (1, vec![writer]));
}

#[test]
fn a_permit_behind_readers_seals_them_too() {
    let mut bench = bench();
    let (holder, b) = (bench.token("a", ""), bench.token("b", "r"));
    let permit = bench.token("c", "2");
    bench.acquire_all([&holder, &b]);
    bench.hush();
    bench.acquire(&permit);
    assert_eq!(bench.heard("b"), about("s", &b));
    assert_eq!(bench.release(&holder), (1, vec![b, permit]), "the second of two");
}

#[test]
fn a_writer_that_gives_up_lets_in_who_stood_behind_it() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, "r"));
    let writer = bench.token("d", "");
    bench.acquire_all([&a, &writer, &b, &c]);
    assert_eq!(bench.release(&writer), (0, vec![b.clone(), c.clone()]));
    assert_eq!(bench.together().len(), 3);
    assert!(bench.waiting().is_empty());
}

#[test]
fn a_dead_writer_keeps_nobody_out() {
    let mut bench = bench();
    let [a, b] = ["a", "b"].map(|process| bench.token(process, "r"));
    let writer = bench.token("d", "");
    bench.acquire_all([&a, &writer]);
    bench.deafen("d");
    assert!(bench.acquire(&b).is_granted());
    assert!(bench.waiting().is_empty());
}

#[test]
fn a_dead_reader_is_not_waited_for() {
    let mut bench = bench();
    let [a, b] = ["a", "b"].map(|process| bench.token(process, "r"));
    let writer = bench.token("c", "");
    bench.ask(&a, lasting(20));
    bench.acquire(&b);
    bench.acquire(&writer);
    bench.until_ended(&a);
    assert_eq!(bench.release(&b), (1, vec![writer.clone()]));
    bench.clear();
    // Also where the last one to leave is among those that have ended.
    for token in [&a, &b] {
        bench.ask(token, lasting(20));
    }
    let waits = bench.acquire(&writer);
    assert!(waits.is_granted() || waits.remaining() <= 20);
    bench.clear();
    bench.ask(&a, lasting(20));
    bench.until_expired();
    assert!(bench.acquire(&writer).is_granted(), "the lock ends with its last holder");
}

/// No message comes when a lease runs out: a writer that waits for it has to know when that is.
#[test]
fn a_writer_learns_that_the_last_lease_ends_earlier() {
    let mut bench = bench();
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, "r"));
    let writer = bench.token("d", "");
    for (token, ttl) in [(&a, 30_000), (&b, 60_000), (&c, 90_000)] {
        bench.ask(token, lasting(ttl));
    }
    assert!(bench.acquire(&writer).remaining() > 80_000);
    bench.hush();
    assert_eq!(bench.release(&a), (1, vec![]));
    assert_eq!(bench.heard("d"), [""; 0], "nothing changes for it");
    assert_eq!(bench.release(&c), (1, vec![]));
    assert_eq!(bench.heard("d"), about("g", &writer));
    assert!(bench.acquire(&writer).remaining() <= 60_000);
    bench.ask(&b, lasting(90_000));
    assert!(bench.acquire(&writer).remaining() > 80_000);
    bench.hush();
    bench.keep(&b, 20_000);
    assert_eq!(bench.heard("d"), about("g", &writer), "one that is kept for less as well");
}

#[test]
fn the_end_of_one_that_left_does_not_linger() {
    let mut bench = bench();
    let [a, b] = ["a", "b"].map(|process| bench.token(process, "r"));
    let writer = bench.token("c", "");
    bench.acquire(&a);
    bench.ask(&b, lasting(20));
    bench.release(&a);
    bench.until_expired();
    assert!(bench.set(&writer, 100_000));
}

#[test]
fn after_a_writers_lease_has_ended_the_front_goes_in_order() {
    let mut bench = bench();
    let writer = bench.token("d", "");
    let [a, b, c] = ["a", "b", "c"].map(|process| bench.token(process, "r"));
    assert!(bench.set(&writer, 100_000));
    bench.acquire_all([&a, &b]);
    bench.expire();
    assert!(bench.acquire(&c).is_granted());
    assert_eq!(bench.together().len(), 3);
    assert_eq!(bench.release(&writer), (0, vec![]), "the dead one frees nothing");
    assert_eq!(bench.together().len(), 3);
}

#[test]
fn a_read_lock_is_kept_after_its_end() {
    let mut bench = bench();
    let [a, b] = ["a", "b"].map(|process| bench.token(process, "r"));
    let writer = bench.token("c", "");
    bench.acquire(&a);
    bench.ask(&b, lasting(20));
    assert_eq!(bench.keep(&a, 50_000), (2, vec![]));
    assert!((40_000..=50_000).contains(&bench.lives()));
    bench.ends_with_the_last();
    bench.acquire(&writer);
    assert_eq!(bench.keep(&a, 50_000), (3, vec![]));
    bench.ends_with_the_last();
    bench.until_ended(&b);
    assert_eq!(bench.release(&a), (1, vec![writer]));
}

#[test]
fn one_that_was_alone_reads_on_with_nobody_in_between() {
    let mut bench = bench();
    let (old, new) = (bench.token("a", ""), bench.token("a", "r"));
    let [b, c] = ["b", "c"].map(|process| bench.token(process, "r"));
    let writer = bench.token("d", "");
    let stranger = bench.token("e", "r");
    let fence = bench.acquire(&old).fence();
    bench.acquire_all([&b, &c, &writer]);
    bench.hush();
    assert_eq!(bench.downgrade(&writer, &stranger), None, "another one's lock");
    let read = bench.downgrade(&old, &new).expect("it had the lock");
    assert!(read.fence() > fence);
    let mut together = bench.together();
    together.sort();
    assert_eq!(together, [new.clone(), b.clone(), c.clone()], "readers at the front come along");
    bench.ends_with_the_last();
    assert_eq!(bench.heard("b"), about("g", &b));
    assert_eq!(bench.waiting(), [writer.as_str()]);
    assert!(bench.downgrade(&old, &new).expect("again").fence() > read.fence());
    assert_eq!(bench.together().len(), 3);
    assert_eq!(bench.downgrade(&old, &stranger), None, "the old token has nothing any more");
    assert_eq!(bench.release(&old), (0, vec![]));
    bench.release(&b);
    bench.release(&c);
    assert_eq!(bench.release(&new), (1, vec![writer]));
}

#[test]
fn a_writer_in_front_waits_for_one_that_reads_on() {
    let mut bench = bench();
    let (old, new) = (bench.token("a", ""), bench.token("a", "r"));
    let (writer, reader) = (bench.token("b", ""), bench.token("c", "r"));
    bench.acquire_all([&old, &writer, &reader]);
    assert!(bench.downgrade(&old, &new).expect("it had the lock").is_granted());
    assert_eq!(bench.together(), [new.as_str()]);
    assert_eq!(bench.waiting(), [writer.clone(), reader], "and keeps those behind it out");
    assert_eq!(bench.release(&new), (1, vec![writer]));
}
