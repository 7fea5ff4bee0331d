//! What may go wrong around a script: it comes late, the server is full or forbids messages, and others
//! write what they should not.

use distlock_testkit::{Args, Bench, Said};
use redis::RedisError;

use super::{PROCESSES, bench, lasting};

#[test]
fn what_comes_too_late_takes_nothing() {
    let mut bench = bench();
    let now = bench.raise(0).1;
    for limit in ["", "r", "3"] {
        let token = bench.token("a", limit);
        for is_try in [false, true] {
            let at = |not_after| Args { not_after, is_try, ..Args::default() };
            assert!(!bench.ask(&token, at(now - 1)).is_granted());
            assert_eq!((bench.lives(), bench.waiting().len()), (-2, 0));
            assert!(bench.ask(&token, at(now + 3_600_000_000)).is_granted());
            assert!(!bench.ask(&token, at(now - 1)).is_granted(), "nor confirms it");
            bench.clear();
        }
    }
}

#[test]
fn fences_grow_over_lost_data() {
    let mut bench = bench();
    for limit in ["", "r", "3"] {
        let token = bench.token("a", limit);
        let before = bench.acquire(&token).fence();
        bench.raw::<()>(&redis::cmd("FLUSHALL")).expect("flushed");
        assert_eq!(bench.renew(&token, 90_000), 0);
        assert!(bench.acquire(&token).fence() > before);
        bench.clear();
        bench.raw::<()>(&redis::cmd("FLUSHALL")).expect("flushed");
        assert_eq!(bench.raise(before + 1_000_000_000).0, before + 1_000_000_001);
        assert_eq!(bench.acquire(&token).fence(), before + 1_000_000_002);
        bench.raw::<()>(&redis::cmd("FLUSHALL")).expect("flushed");
    }
}

#[test]
fn a_full_server_lets_out_and_extends_and_lets_in_nobody_new() {
    let mut bench = bench();
    let (writer, next) = (bench.token("a", ""), bench.token("b", ""));
    let [c, d] = ["c", "d"].map(|process| bench.token(process, "r"));
    let late = ["", "r", "3"].map(|limit| bench.token("e", limit));
    bench.acquire_all([&writer, &next, &c, &d]);
    bench.is_full(true);
    for late in &late {
        let refused = bench.try_ask(late, Args::default()).expect_err("refused");
        // In 6.2 the code of an error inside a script is only in its text.
        assert!(refused.to_string().contains("OOM"), "{refused}");
    }
    assert_eq!(bench.waiting().len(), 3, "nothing is left of it");
    assert_eq!(bench.renew(&writer, 200_000), 2);
    assert_eq!(bench.release(&writer), (1, vec![next.clone()]));
    assert_eq!(bench.alone().as_ref(), Some(&next));
    assert!(bench.acquire(&next).is_granted(), "a confirmation");
    assert_eq!(bench.release(&next), (1, vec![c.clone(), d.clone()]));
    assert_eq!(bench.release(&c), (1, vec![]));
    assert_eq!(bench.release(&d), (1, vec![]));
    bench.is_full(false);
    bench.acquire_all([&c, &writer]);
    bench.is_full(true);
    assert_eq!(bench.release(&c), (1, vec![writer.clone()]));
    assert_eq!(bench.release(&writer), (1, vec![]), "nobody waits");
}

#[test]
fn a_full_server_goes_on_with_what_several_hold() {
    let mut bench = bench();
    for limit in ["r", "3"] {
        let [a, b] = ["a", "b"].map(|process| bench.token(process, limit));
        let (writer, new) = (bench.token("c", ""), bench.token("d", limit));
        bench.ask(&a, lasting(50_000));
        bench.is_full(true);
        let refused = bench.try_ask(&new, Args::default()).expect_err("nobody new");
        assert!(refused.to_string().contains("OOM"), "{refused}");
        assert_eq!((bench.together().len(), bench.waiting().len()), (1, 0));
        assert_eq!(bench.renew(&a, 90_000), 1);
        assert!(bench.lives() > 80_000);
        bench.ends_with_the_last();
        assert_eq!(bench.keep(&a, 20_000), (2, vec![]));
        assert!((10_000..=20_000).contains(&bench.lives()));
        bench.is_full(false);
        bench.clear();

        bench.acquire_all([&writer, &a, &b]);
        bench.is_full(true);
        assert_eq!(bench.release(&writer), (1, vec![a.clone(), b.clone()]));
        for token in [&a, &b] {
            assert!(bench.acquire(token).is_granted(), "a confirmation");
            bench.ends_with_the_last();
        }
        assert!(bench.lives() > 90_000);
        bench.is_full(false);
        bench.clear();
    }
    let [old, new] = ["", "r"].map(|limit| bench.token("a", limit));
    bench.acquire(&old);
    bench.is_full(true);
    for time in ["at first", "again"] {
        assert!(bench.downgrade(&old, &new).is_some_and(Said::is_granted), "{time}");
        bench.ends_with_the_last();
    }
}

/// "Not this token's" would be the end of a lock that is there.
#[test]
fn fc2_a_refused_command_is_an_error_and_no_answer_about_the_lock() {
    // How a server comes to refuse a read or a write, and how it takes them again.
    const REFUSALS: [(&str, &str); 4] = [
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("CONFIG SET replica-serve-stale-data no", "CONFIG SET replica-serve-stale-data yes"),
        ("ACL SETUSER default -get -zscore -zcard -zrem", "ACL SETUSER default +@all"),
        (
            "ACL SETUSER default -del -zrem -pexpire -pexpireat -zpopmin",
            "ACL SETUSER default +@all",
        ),
    ];
    let mut bench = bench();
    let command = |bench: &mut Bench, words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        bench.raw::<()>(redis::cmd(words[0]).arg(&words[1..])).expect("done");
    };
    for limit in ["", "r", "3"] {
        for waits in [false, true] {
            for (refuse, accept) in REFUSALS {
                let (token, next) = (bench.token("a", limit), bench.token("b", ""));
                bench.acquire(&token);
                if waits {
                    bench.acquire(&next);
                }
                // A replica that has never seen its primary.
                command(&mut bench, "CONFIG SET replica-read-only no");
                let is_replica = refuse.contains("stale");
                if is_replica {
                    command(&mut bench, "REPLICAOF 127.0.0.1 1");
                }
                command(&mut bench, refuse);
                let is_refused = |error: Option<RedisError>, what: &str| {
                    let text = error.map(|error| error.to_string()).unwrap_or_default();
                    let words = ["NOREPLICAS", "MASTER is down", "permission", "can't run this"];
                    let is_one = words.iter().any(|word| text.contains(word));
                    assert!(is_one, "{refuse}, {limit:?}, waits: {waits}, {what}: {text:?}");
                };
                is_refused(bench.try_release(&token, None).err(), "release");
                is_refused(bench.try_release(&token, Some(1000)).err(), "keep");
                is_refused(bench.try_free(&token).err(), "free");
                is_refused(bench.try_renew(&token, 200_000).err(), "renew");
                command(&mut bench, accept);
                if is_replica {
                    command(&mut bench, "REPLICAOF NO ONE");
                }
                assert_eq!(bench.renew(&token, 10), if waits { 2 } else { 1 }, "{refuse}");
                let let_in = if waits { vec![next] } else { vec![] };
                assert_eq!(bench.release(&token), (1, let_in), "{refuse}");
                bench.clear();
            }
        }
    }
}

#[test]
fn without_the_right_to_send_messages_the_lock_is_handed_on() {
    let mut bench = bench();
    let (writer, next) = (bench.token("a", ""), bench.token("b", ""));
    let reader = bench.token("c", "r");
    bench.acquire_all([&writer, &next, &reader]);
    let mut forbid = redis::cmd("ACL");
    forbid.arg("SETUSER").arg("default").arg("-pubsub").arg("resetchannels");
    bench.raw::<()>(&forbid).expect("set");
    assert_eq!(bench.release(&writer), (1, vec![next.clone()]));
    assert_eq!(bench.release(&next), (1, vec![reader.clone()]));
    assert_eq!(bench.together(), [reader]);
}

#[test]
fn what_is_not_ours_is_waited_for_and_left_as_it_is() {
    let mut bench = bench();
    let tokens = ["", "r", "3"].map(|limit| bench.token("a", limit));
    bench.lock::<()>("SET", &["theirs"]);
    for token in &tokens {
        assert_eq!(bench.acquire(token).remaining(), -1);
        assert_eq!(bench.release(token), (0, vec![]));
    }
    assert_eq!(bench.alone().as_deref(), Some("theirs"));
    bench.clear();
    // A set of ours has an end.
    bench.lock::<u64>("ZADD", &["1", "theirs", "9e15", "too"]);
    for token in &tokens {
        assert!(!bench.attempt(token).is_granted());
        assert!(!bench.acquire(token).is_granted());
        assert_eq!(bench.release(token), (0, vec![]));
        assert_eq!(bench.renew(token, 90_000), 0);
    }
    assert_eq!((bench.together().len(), bench.lives()), (2, -1));
    bench.clear();
    for command in ["RPUSH", "SADD"] {
        bench.lock::<u64>(command, &["theirs"]);
        for token in &tokens {
            let refused = bench.try_ask(token, Args::default()).expect_err("no lock at all");
            assert!(refused.to_string().contains("WRONGTYPE"), "{refused}");
            let _ = bench.try_release(token, None);
            assert_eq!(bench.renew(token, 90_000), 0);
        }
        assert_eq!((bench.lives(), bench.waiting().len()), (-1, 0));
        bench.clear();
    }
}

#[test]
fn forged_tokens_in_the_queue_keep_nobody_out() {
    let mut bench = bench();
    let (writer, reader) = (bench.token("a", ""), bench.token("b", "r"));
    let forged = [
        "junk",
        "a.1.0s",
        "a.1.10001s",
        "a.1.99999999999999999999s",
        "a.1.5000x",
        "a.1.5000s5r",
        "a.1.5000s0",
        "a.1.5000s1",
        "a.1.5000s05",
        "a.1.5000s0x10",
        "a.1.5000s5e1",
        "a.1.5000srr",
        "a.1.s",
        "a..5000s",
        "a.1.5000s.x",
        "nobody.1.5000s3",
        "nobody.1.5000s",
        "nobody.1.5000sr",
    ];
    for token in [&writer, &reader] {
        for forged in forged {
            bench.queue::<u64>("ZADD", &["1", forged]);
        }
        assert!(bench.acquire(token).is_granted(), "{:?}", bench.waiting());
        assert!(bench.waiting().is_empty());
        bench.clear();
    }
}

#[test]
fn every_key_but_the_counter_ends() {
    let mut bench = bench();
    let readers = PROCESSES.map(|process| bench.token(process, "r"));
    for token in &readers {
        bench.ask(token, lasting(60_000));
    }
    let (writer, permit) = (bench.token("a", ""), bench.token("b", "2"));
    bench.acquire_all([&writer, &permit]);
    for reader in &readers {
        bench.keep(reader, 50_000);
        bench.ends_with_the_last();
    }
    for reader in &readers {
        bench.release(reader);
        assert!(bench.lives() > 0 && bench.queue::<i64>("PTTL", &[]) > 0);
    }
    assert_eq!(bench.alone().as_ref(), Some(&writer));
    bench.release(&writer);
    assert_eq!(bench.together(), [permit.as_str()]);
    bench.ends_with_the_last();
    assert_eq!(bench.release(&permit), (1, vec![]));
    assert_eq!((bench.lives(), bench.queue("PTTL", &[])), (-2, -2));
}
