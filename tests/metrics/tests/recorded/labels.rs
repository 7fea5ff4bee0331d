use std::time::{SystemTime, UNIX_EPOCH};

use distlock::{LockManager, LockMode, key};
use distlock_testkit::{in_own_process, this_test};
use metrics::with_local_recorder;

use crate::text::{builder, install, samples};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Numbers that look random; from the clock, and said where a test fails.
fn numbers() -> (u64, impl FnMut() -> u64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = since.as_nanos() as u64 | 1;
    let mut state = seed;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (seed, next)
}

#[distlock::redis_lock(key = "user:{user}", manager = manager)]
async fn annotated(manager: &LockManager, user: &str) -> Result<(), distlock::LockError> {
    Ok(())
}

/// Whatever a key is, and whatever becomes of the call.
#[test]
fn no_label_contains_a_key() {
    let (seed, mut next) = numbers();
    let recorder = builder().build_recorder();
    let manager = LockManager::in_memory();
    let mut secrets = Vec::new();
    with_local_recorder(&recorder, || {
        block_on(async {
            for _ in 0..300 {
                let letters = "abcxyz019 :%-_@{}/é";
                let letter = |at: u64| letters.chars().nth(at as usize % 18).unwrap_or('x');
                let text: String = (0..next() % 20).map(|_| letter(next())).collect();
                let secret = format!("s3cret{}{text}", next() % 1000);
                match next() % 11 {
                    0 => annotated(&manager, &secret).await.expect("free"),
                    1 => manager.lock(key!("user:{secret}")).run(async {}).await.expect("free"),
                    2 => {
                        let guard = manager.lock(secret.clone()).acquire().await.expect("free");
                        manager.lock(secret.clone()).acquire().await.expect_err("held");
                        manager.force_release(secret.clone()).await.expect("asked");
                        guard.lost().await;
                    }
                    3 => {
                        let keys = [secret.clone(), format!("{secret}2")];
                        drop(manager.lock_all(keys).acquire().await.expect("free"));
                    }
                    4 => {
                        let long = secret.repeat(1000);
                        manager.lock(long).acquire().await.expect_err("too long");
                    }
                    5 => manager.inspect(secret.clone()).await.map(drop).expect("an answer"),
                    6 => {
                        let request = manager.lock(secret.clone()).mode(LockMode::Read);
                        request.run(async {}).await.expect("free");
                    }
                    7 => {
                        let request = manager.lock(secret.clone()).permits(3);
                        drop(request.acquire().await.expect("free"));
                    }
                    8 => manager.lock(secret.clone()).run_blocking(|_| ()).expect("free"),
                    9 => {
                        let leader = manager.leader(secret.clone()).start();
                        tokio::task::yield_now().await;
                        drop(leader);
                    }
                    _ => {
                        let request = manager.lock(secret.clone()).prefix(&secret);
                        drop(request.acquire().await);
                    }
                }
                secrets.push(secret);
            }
        });
    });
    let text = recorder.handle().render();
    assert!(text.contains(r#"::labels::annotated""#), "{text}");
    let samples = samples(&text);
    for (name, value) in samples.iter().flat_map(|sample| &sample.labels) {
        let tells = secrets.iter().find(|secret| value.contains("s3cret") || value == *secret);
        assert_eq!(tells, None, "{name}={value:?}, seed {seed}");
    }
}

/// As many calls for each of them, twice; names lie where others did before.
async fn take_under_names(names: usize) {
    let manager = LockManager::in_memory();
    for _ in 0..2 {
        for n in 0..names {
            let request = manager.lock("k").name(format!("name-{n}"));
            request.run(async {}).await.expect("free");
        }
    }
}

fn all_but_five_hundred_are_other(text: &str, names: usize) {
    let of = |name| samples(text).into_iter().filter(move |sample| sample.name == name);
    let acquired = of("distlock_acquisitions_total")
        .filter(|sample| sample.label("outcome") == Some("acquired"));
    for calls in [acquired.collect::<Vec<_>>(), of("distlock_hold_seconds_count").collect()] {
        assert_eq!(calls.len(), 501, "{calls:?}");
        for sample in calls {
            let others = 2.0 * (names - 500) as f64;
            let expected = if sample.label("lock") == Some("other") { others } else { 2.0 };
            assert_eq!(sample.value, expected, "{sample:?}");
        }
    }
    for held in of("distlock_held") {
        assert_eq!(held.value, 0.0, "{held:?}");
    }
}

#[test]
fn names_beyond_five_hundred_are_called_other() {
    let recorder = builder().build_recorder();
    with_local_recorder(&recorder, || block_on(take_under_names(520)));
    all_but_five_hundred_are_other(&recorder.handle().render(), 520);
}

/// Its handles are kept.
#[test]
fn names_beyond_five_hundred_are_other_to_the_recorder_of_the_process_too() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let prometheus = install();
    block_on(take_under_names(520));
    all_but_five_hundred_are_other(&prometheus.render(), 520);
}
