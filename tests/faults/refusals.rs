//! R: servers that will never do, and what is said of them.

use distlock::{BackendKind, LockError, LockManager};
use distlock_testkit::{
    LONG, Log, RedisServer, backend, connections, in_own_process, ms, patient_builder, this_test,
    wait_for, wait_until, whole_text,
};

/// One node that has all slots: what is called a cluster of one shard.
fn cluster() -> RedisServer {
    let server = RedisServer::builder().args(["--cluster-enabled", "yes"]).start();
    server.cli::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    wait_until("the cluster is up", || {
        server.cli::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    });
    server
}

#[track_caller]
fn is_no_place_for_locks<T>(result: Result<T, LockError>) {
    let error = result.err().expect("its renewal would fail");
    let text = whole_text(&error);
    assert!(text.contains("node of a cluster"), "{text}");
    assert!(text.contains("use redis-cluster://"), "the mend is not named: {text}");
    assert_eq!(backend::<()>(Err(error)), BackendKind::Other);
}

#[tokio::test]
async fn f38_a_cluster_of_one_shard_is_refused_at_the_start_and_before_the_first_lock() {
    let server = cluster();
    is_no_place_for_locks(patient_builder(&server.url()).connect().await);
    is_no_place_for_locks(patient_builder(&server.url()).prefix("").connect().await);
    let lazy = patient_builder(&server.url()).build().expect("no I/O yet");
    is_no_place_for_locks(lazy.lock("k").ttl(LONG).acquire().await);
    is_no_place_for_locks(lazy.lock("k").ttl(LONG).wait(LONG).acquire().await);
    is_no_place_for_locks(lazy.lock_all(["a", "b"]).ttl(LONG).wait(LONG).acquire().await);
    wait_until("nothing is left", || server.lock_keys().is_empty());
}

#[tokio::test]
async fn f38_the_look_for_a_cluster_takes_no_right_that_locks_do_not_take() {
    let server = RedisServer::start();
    let rights = "reset on >secret ~distlock:fence ~distlock:*:{mine} +@all";
    let mut rule = vec!["ACL", "SETUSER", "app"];
    rule.extend(rights.split(' '));
    server.cli::<()>(&rule);
    let url = format!("redis://app:secret@{}", server.addr());
    let manager = patient_builder(&url).connect().await.expect("its locks are allowed");
    let guard = manager.lock("mine").ttl(LONG).acquire().await.expect("allowed");
    guard.release().await.expect("it was held");
}

#[tokio::test]
async fn f27_a_database_that_does_not_exist_is_refused_with_the_mend() {
    let server = RedisServer::builder().password("hush-hush").start();
    let with_password = server.url_of_db(99);
    let without = format!("redis://{}/2", server.addr());
    for (url, words) in
        [(with_password, "database 99 does not exist"), (without, "Authentication required")]
    {
        let lazy = LockManager::connect_lazy(&url).expect("a URL");
        for error in [
            patient_builder(&url).connect().await.err(),
            lazy.lock("k").ttl(LONG).acquire().await.err(),
            lazy.lock("k").ttl(LONG).wait(LONG).acquire().await.err(),
        ] {
            let error = error.expect("it cannot be used");
            let text = format!("{} {error:?}", whole_text(&error));
            assert!(text.contains(words), "{text}");
            assert!(!text.contains("hush"), "{text}");
            assert_eq!(backend::<()>(Err(error)), BackendKind::Refused, "{text}");
        }
    }
    wait_until("no connection is kept", || connections(&server) <= 1);
}

/// A server repeats the arguments of a command that it does not know: keys, and passwords.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f18_no_key_and_no_password_is_in_what_a_server_says() {
    // In a process of its own: what is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let mut texts = Vec::new();
    for unknown in ["SET", "INCR", "GET", "PTTL", "ZRANGE", "EVALSHA", "EVAL"] {
        let server = RedisServer::builder().args(["--rename-command", unknown, ""]).start();
        let manager = patient_builder(&server.url()).build().expect("no I/O yet");
        let key = "user:alice@example.org it's";
        let held = manager.lock(key).ttl(LONG).acquire().await;
        texts.extend(held.as_ref().err().map(|error| format!("{} {error:?}", whole_text(error))));
        for error in [
            manager.lock(key).ttl(LONG).acquire().await.err(),
            manager.lock(key).ttl(LONG).wait(ms(20)).acquire().await.err(),
            manager.lock(key).ttl(ms(300)).run(tokio::time::sleep(ms(150))).await.err(),
            manager.inspect(key).await.err(),
            manager.force_release(key).await.err(),
            match held {
                Ok(guard) => guard.release().await.err(),
                Err(_) => None,
            },
        ] {
            texts.extend(error.map(|error| format!("{} {error:?}", whole_text(&error))));
        }
        manager.close(ms(500)).await;
    }
    // In a script the server does not name it, and every script runs before the first lock.
    for command in ["EVALSHA", "EVAL"] {
        let named = |text: &String| text.to_uppercase().contains(&format!("'{command}'"));
        assert!(texts.iter().any(named), "{command} is not named: {texts:#?}");
    }
    let no_hello = RedisServer::builder().args(["--rename-command", "HELLO", ""]).start();
    no_hello.cli::<()>(&["ACL", "SETUSER", "app", "on", ">hush-hush", "~*", "&*", "+@all"]);
    let url = format!("redis://app:hush-hush@{}", no_hello.addr());
    let manager = patient_builder(&url).connect().await.expect("it has what locks need");
    wait_for("it is said", async || log.text().contains("wake_ups_denied")).await;
    drop(manager);
    texts.push(log.text());
    for text in texts {
        for secret in ["alice", "example.org", "hush"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
