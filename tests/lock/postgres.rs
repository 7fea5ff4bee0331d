//! What is special about locks in Postgres; what they have in common with all others is in `conformance`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use distlock::{BackendKind, LockError, LockManager, LockStatus, WakeUps};
use distlock_testkit::conformance::Subject as _;
use distlock_testkit::{
    Certificates, LONG, PgBouncer, PostgresServer, SECOND, assert_busy, backend, connect, held, ms,
    no_row_is_left, patient, patient_builder, served, wait_for, waits, whole_text,
};
use tokio::task::JoinSet;

/// The URL of another role, without a password.
fn url_of(server: &PostgresServer, role: &str) -> String {
    format!("postgres://{role}@{}/postgres", server.addr())
}

/// Fault: P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_managers_make_the_schema_at_once() {
    let server = PostgresServer::start();
    let mut connecting = JoinSet::new();
    for _ in 0..8 {
        let url = server.url();
        connecting.spawn(async move { patient(&url).await });
    }
    let managers = connecting.join_all().await;
    let guard = held(&managers[0], "k").await;
    assert_busy(managers[7].lock("k").acquire().await);
    drop(guard);
    // By hand it may be run again.
    let schema = format!("{}/distlock-postgres/src/schema.sql", env!("CARGO_MANIFEST_DIR"));
    server.sql(&std::fs::read_to_string(schema).expect("the schema"));
    no_row_is_left(&server);
}

/// Fault: P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_not_make_the_schema_is_told_so_and_works_once_it_is_there() {
    let server = PostgresServer::start();
    server.sql("CREATE ROLE app LOGIN");
    let refused = patient_builder(&url_of(&server, "app")).connect().await;
    let text = whole_text(refused.as_ref().expect_err("it may not"));
    assert!(text.contains("schema.sql"), "{text}");
    assert_eq!(backend(refused), BackendKind::Refused);

    let owner = connect(&server.url()).await;
    server.sql("GRANT USAGE ON SCHEMA distlock TO app");
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA distlock TO app");
    server.sql("GRANT ALL ON ALL SEQUENCES IN SCHEMA distlock TO app");
    let app = connect(&url_of(&server, "app")).await;
    let guard = held(&app, "k").await;
    let waiting = waits(&owner, "k");
    wait_for("it waits", async || owner.status().waiting == 1).await;
    guard.release().await.expect("it was held");
    drop(served(waiting).await);
    no_row_is_left(&server);
}

/// Fault: P3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_messages_waiters_look() {
    let server = PostgresServer::start();
    let url = format!("{}?listen=false&durability=async", server.url());
    let (one, other) = (patient(&url).await, patient(&url).await);
    let guard = held(&one, "k").await;
    let waiting = waits(&other, "k");
    wait_for("it waits", async || server.left().len() == 2).await;
    assert_eq!(other.status().wake_ups, WakeUps::Polling);
    guard.release().await.expect("it was held");
    served(waiting).await.release().await.expect("it was held");
    no_row_is_left(&server);
}

/// Fault: P5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_do_not_see_what_was_committed_take_no_lock() {
    let server = PostgresServer::start();
    server.sql("ALTER ROLE distlock SET default_transaction_isolation = 'repeatable read'");
    let manager = patient(&server.url()).await;
    let refused = manager.lock("k").acquire().await;
    let text = whole_text(refused.as_ref().expect_err("two could have it"));
    assert!(text.contains("committed"), "{text}");
    assert_eq!(backend(refused), BackendKind::Other);
}

/// Fault: P6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_stored_is_refused_without_being_repeated() {
    let server = PostgresServer::start();
    let manager = patient(&server.url()).await;
    for key in ["secret".repeat(400), "secret\0".to_owned()] {
        let refused = manager.lock(key).acquire().await;
        let text = whole_text(refused.as_ref().expect_err("it does not fit"));
        assert!(!text.contains("secretsecret") && !text.contains("secret\0"), "{text}");
    }
    let longest = "k".repeat(1900);
    held(&manager, &longest).await.release().await.expect("it was held");
    no_row_is_left(&server);
}

/// Rows of dead processes that no call has come across since do not stay for good.
/// Fault: P7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_dead_have_left_is_swept_up() {
    let server = PostgresServer::start();
    drop(connect(&server.url()).await);
    server.sql("INSERT INTO distlock.lease VALUES ('old', 'x.1.1000s', 1, 1)");
    server.sql("INSERT INTO distlock.waiter VALUES ('old', 1, 'x.2.1000s', 1, 1000, true, 1)");
    assert_eq!(server.left().len(), 2);
    let _manager = patient(&server.url()).await;
    no_row_is_left(&server);
}

/// Tables and functions of an older version are brought up to date.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_older_version_has_made_is_brought_up_to_date() {
    let server = PostgresServer::start();
    drop(connect(&server.url()).await);
    server.sql(
        "ALTER TABLE distlock.lease DROP COLUMN since; DROP FUNCTION distlock.announce;
         CREATE OR REPLACE FUNCTION distlock.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 4'",
    );
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = held(&one, "k").await;
    let waiting = waits(&other, "k");
    wait_for("it waits", async || server.left().len() == 2).await;
    guard.release().await.expect("it was held");
    served(waiting).await.release().await.expect("it was held");
    no_row_is_left(&server);
}

/// Every message wakes every session that listens: a place in the queue sends none, and the release that
/// wakes the next waiter names the one behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stands_in_front_is_told_with_the_next_release_or_after_a_while() {
    let server = PostgresServer::start();
    drop(connect(&server.url()).await);
    let ask = |name: &str, token: &str, is_try: bool| {
        format!(
            "SELECT distlock.acquire('{name}', '{token}.1.1000s', 1, 10000, 0, 1000, false, {is_try}, 0, distlock.started(), true)"
        )
    };
    let heard = |name: &str, then: &str| {
        let (holder, one) = (ask(name, "h", true), ask(name, "one", false));
        let (two, three) = (ask(name, "two", false), ask(name, "three", false));
        let listen = ["h", "one", "two"].map(|process| format!("LISTEN distlock_{process}"));
        let [holds, first, second] = listen;
        let commands = [&*holds, &first, &second, &holder, &one, &two, &three, then];
        let output = server.sql(&commands.join("; COMMIT; "));
        let payload =
            |line: &str| Some(line.split_once("payload \"")?.1.split_once('"')?.0.to_owned());
        output.lines().filter_map(payload).collect::<Vec<_>>()
    };
    let announce =
        |name: &str, token: &str| format!("SELECT distlock.announce('{name}', '{token}.1.1000s')");
    let release =
        |name: &str| format!("SELECT distlock.release('{name}', 'h.1.1000s', NULL, true)");
    assert_eq!(heard("a", "SELECT 1"), [""; 0]);
    assert_eq!(heard("b", &announce("b", "one")), ["s h.1.1000s b"]);
    assert_eq!(heard("c", &announce("c", "three")), ["s two.1.1000s c"]);
    // What is known by then is not said again.
    let then = [release("d"), announce("d", "two"), announce("d", "three")].join("; COMMIT; ");
    assert_eq!(heard("d", &then), ["g one.1.1000s d", "s two.1.1000s d"]);
}

/// A later caller of the process in front is served later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_does_not_join_those_in_front_of_another_process() {
    let server = PostgresServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let holder = connect(&server.url()).await;
    let guard = held(&holder, "k").await;
    let first = waits(&one, "k");
    wait_for("it waits", async || server.left().len() == 2).await;
    let second = waits(&other, "k");
    wait_for("it waits, too", async || server.left().len() == 3).await;
    // The one in front has heard of it.
    tokio::time::sleep(ms(1000)).await;
    let third = waits(&one, "k");
    wait_for("it stands behind", async || server.left().len() == 4).await;
    guard.release().await.expect("it was held");
    let first = served(first).await;
    let (tokens, second) = (first.fencing_token(), tokio::spawn(served(second)));
    first.release().await.expect("it was held");
    let second = second.await.expect("no panic");
    assert!(tokens < second.fencing_token());
    let order = second.fencing_token();
    second.release().await.expect("it was held");
    assert!(order < served(third).await.fencing_token());
    no_row_is_left(&server);
}

/// A release and a place in the queue do not wait for the disk. The next holder does, and what came before is
/// written with it: a crash right after that forgets neither, or two could have the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_forgets_no_lock_that_was_handed_on() {
    let mut server = PostgresServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.lock("k").ttl(LONG).acquire().await.expect("it is free");
    let waiting = waits(&other, "k");
    wait_for("it waits", async || server.left().len() == 2).await;
    guard.release().await.expect("it was held");
    let guard = served(waiting).await;
    // Not a moment later, in which the server would write what no caller waits for.
    server.kill9();
    server.restart();
    let left = server.left();
    assert!(left.len() == 1 && left[0].starts_with("lease "), "{left:?}");
    assert_busy(patient(&server.url()).await.lock("k").acquire().await);
    assert!(guard.is_held());
    guard.release().await.expect("it was held");
    no_row_is_left(&server);
}

/// What was deleted is there until it is vacuumed: 2000 rows of one lock, on a hundred pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_taken_often_is_taken_with_as_little() {
    let server = PostgresServer::start();
    drop(connect(&server.url()).await);
    server.sql("ALTER TABLE distlock.lease SET (autovacuum_enabled = off)");
    let take = |name: &str, token: &str| {
        format!(
            "distlock.acquire('{name}', {token}, 1, 10000, 0, 1000, true, true, 0, distlock.started(), true)"
        )
    };
    let token = "'p.' || n || '.1000s'";
    server.sql(&format!(
        "DO $$ DECLARE a bigint[]; r record; BEGIN FOR n IN 1..2000 LOOP
            a := {}; COMMIT;
            SELECT * INTO r FROM distlock.release('k', {token}, NULL, true); COMMIT;
        END LOOP; END $$",
        take("k", token)
    ));
    // A session's first call reads the catalogue.
    let (first, then) = (take("first", "'p.0.1000s'"), take("k", "'p.0.1000s'"));
    let explain = format!("BEGIN; EXPLAIN (ANALYZE, BUFFERS) SELECT {then}; ROLLBACK;").repeat(3);
    let plans = server.sql(&format!("SELECT {first}; {explain}"));
    let pages = plans.split("shared hit=").skip(1).map(|pages| {
        let pages = pages.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        pages.parse::<u32>().expect("a number")
    });
    // An autovacuum of another table has a session read the catalogue again.
    assert!(pages.min().expect("it reads pages") < 50, "{plans}");
}

/// A backend that is ended, as by an operator or a load balancer, costs no lock.
/// Fault: P2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_ends_cost_no_lock() {
    let server = PostgresServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.lock("k").ttl(5 * SECOND).acquire().await.expect("it is free");
    let waiting = waits(&other, "k");
    wait_for("it waits", async || server.left().len() == 2).await;
    for _ in 0..3 {
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'distlock' AND pid <> pg_backend_pid()",
        );
        assert!(guard.is_held());
    }
    // Its connection may end under the release, which then goes on without the caller.
    if let Err(error) = guard.release().await {
        assert_eq!(backend(Err::<(), _>(error)), BackendKind::Unreachable);
    }
    let next = tokio::time::timeout(LONG / 4, served(waiting)).await.expect("its turn comes");
    next.release().await.expect("it was held");
    no_row_is_left(&server);
}

/// Holders and waiters report themselves, over the server's messages; for a frozen process its record does.
/// Fault: P9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_say_who_they_are_and_what_they_hold() {
    let server = PostgresServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.lock("k").ttl(LONG).name("checkout").acquire().await.expect("it is free");
    let waiting = waits(&other, "k");
    wait_for("it waits", async || server.left().len() == 2).await;
    let own = std::process::id();
    wait_for("both say who they are", async || {
        let status = one.inspect("k").await.expect("an answer");
        let LockStatus::Held { holders, waiters, .. } = status else { return false };
        let holder = holders[0].process.as_ref().map(|process| process.pid);
        let waiter = waiters.first().and_then(|waiter| waiter.process.as_ref());
        holders[0].name.as_deref() == Some("checkout")
            && holder == Some(own)
            && waiter.map(|process| process.pid) == Some(own)
    })
    .await;
    // A third one gets answers from the two others, which it finds in the table.
    let third = connect(&server.url()).await;
    let status = third.inspect("k").await.expect("an answer");
    let LockStatus::Held { holders, .. } = status else { panic!("{status:?}") };
    assert_eq!(holders[0].process.as_ref().map(|process| process.pid), Some(own));
    wait_for("all three have a record", async || {
        third.processes().await.expect("an answer").len() == 3
    })
    .await;
    guard.release().await.expect("it was held");
    drop(served(waiting).await);
    for manager in [&one, &other] {
        assert!(manager.close(LONG).await.is_complete());
    }
    wait_for("who has closed is gone", async || {
        third.processes().await.expect("an answer").len() == 1
    })
    .await;
    no_row_is_left(&server);
}

/// Every command is one statement: it does not matter which connection each gets.
/// Fault: P3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_that_gives_each_transaction_to_another_connection() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::before(&server, 2);
    let url = server.url_at(pooler.addr());
    let (one, other) = (patient(&url).await, patient(&url).await);
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let request = if n % 2 == 0 { &one } else { &other }.lock("k").ttl(LONG).wait(LONG);
        let count = count.clone();
        tasks.spawn(async move {
            let body = async {
                let before = count.load(SeqCst);
                tokio::time::sleep(ms(1)).await;
                count.store(before + 1, SeqCst);
            };
            request.run(body).await.expect("its turn comes");
        });
    }
    tasks.join_all().await;
    assert_eq!(count.load(SeqCst), 20);
    // It takes `LISTEN`, and nothing is ever heard.
    assert_eq!(other.status().wake_ups, WakeUps::Polling);
    no_row_is_left(&server);
}

/// Fault: P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tls_the_server_has_to_show_a_certificate_that_is_trusted() {
    let authority = Certificates::new();
    let server = PostgresServer::encrypted(&authority.issue("server", &["DNS:localhost"]));
    let url = |host: &str, options: &str| {
        format!("postgres://distlock@{host}:{}/postgres?{options}", server.addr().port())
    };
    let trusted = format!("sslmode=verify-full&sslrootcert={}", authority.ca().display());
    let manager = connect(&url("localhost", &trusted)).await;
    held(&manager, "k").await.release().await.expect("it was held");
    const PLAIN: &str = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE a.application_name = 'distlock' AND NOT s.ssl";
    assert_eq!(server.sql(PLAIN), "0");

    let stranger = Certificates::new();
    let strangers = format!("sslmode=require&sslrootcert={}", stranger.ca().display());
    for (host, options, mend) in [
        ("localhost", "sslmode=require", "sslrootcert"),
        ("127.0.0.1", trusted.as_str(), "as its certificate does"),
        ("localhost", strangers.as_str(), "sslrootcert"),
    ] {
        let refused = patient_builder(&url(host, options)).connect().await;
        let text = whole_text(refused.as_ref().expect_err("no trust"));
        assert!(text.contains(mend), "{text}");
    }
    no_row_is_left(&server);
    drop(manager);

    let without = PostgresServer::start();
    let url = format!("{}?{trusted}", without.url_at(without.addr()));
    let refused = patient_builder(&url).connect().await;
    let text = whole_text(refused.as_ref().expect_err("no TLS"));
    assert!(text.contains("does not speak TLS"), "{text}");
    assert_eq!(backend(refused), BackendKind::Refused);
}

#[test]
fn a_mistake_in_the_url_is_named_and_the_password_is_not() {
    let mistake = LockManager::connect_lazy("postgres://shop:hunter2@host/x?durability=perhaps");
    let Err(LockError::InvalidOption { .. }) = &mistake else { panic!("a mistake") };
    let text = whole_text(&mistake.expect_err("a mistake"));
    assert!(text.contains("durability") && !text.contains("hunter2"), "{text}");
}

/// How many connections distlock has at a server.
const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'distlock' AND backend_type = 'client backend'";

fn connections(server: &PostgresServer) -> usize {
    server.sql(CONNECTIONS).parse().expect("a number")
}

/// Takes and frees 20 locks at once, each with a `wait` of nothing: how many could be taken.
async fn twenty(manager: &LockManager) -> usize {
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let lock = manager.lock(format!("k{n}"));
        tasks.spawn(async move {
            let Ok(guard) = lock.acquire().await else { return 0 };
            usize::from(guard.release().await.is_ok())
        });
    }
    tasks.join_all().await.into_iter().sum()
}

/// Takes locks until `is_over`, and says how many connections there were at most meanwhile.
async fn most_connections(
    server: &PostgresServer,
    manager: &LockManager,
    is_over: impl Fn() -> bool,
) -> usize {
    let mut most = 0;
    while !is_over() {
        let manager = manager.clone();
        let calls = tokio::spawn(async move { twenty(&manager).await });
        while !calls.is_finished() {
            most = most.max(connections(server));
            tokio::time::sleep(ms(20)).await;
        }
    }
    most
}

/// All 20 can be taken again.
async fn all_are_free_again(manager: &LockManager) {
    wait_for("all locks can be taken", async || twenty(manager).await == 20).await;
}

fn impatient(url: &str) -> distlock::LockManagerBuilder {
    LockManager::builder().url(url).command_timeout(ms(200)).connect_timeout(30 * SECOND)
}

/// Four for commands and one for renewals; a manager makes each of them when it is first needed.
const ALL: usize = 5;

/// A backend that waits does not see that its client has left. It is asked to stop, and counts until it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd1_a_table_that_is_locked_costs_no_more_than_twice_the_connections() {
    let server = Arc::new(PostgresServer::start());
    let manager = impatient(&server.url()).connect().await.expect("it is there");
    all_are_free_again(&manager).await;
    let before = connections(&server);
    let locker = server.clone();
    let locks = std::thread::spawn(move || {
        locker.sql(
            "BEGIN; LOCK TABLE distlock.lease IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(8); COMMIT",
        )
    });
    let most = most_connections(&server, &manager, || locks.is_finished()).await;
    assert!(most <= 2 * before.max(ALL), "{most} connections instead of {before}");
    all_are_free_again(&manager).await;
    no_row_is_left(&server);
}

/// The function is done, and its commit waits as long as it takes. Nothing is granted: a failover would forget it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd1_a_synchronous_standby_that_is_missing_grants_nothing_and_costs_few_connections() {
    let server = PostgresServer::start();
    let waits_long = patient(&server.url()).await;
    held(&waits_long, "canceled").await.release().await.expect("it was held");
    let hasty = impatient(&server.url()).connect_timeout(ms(500));
    let manager = hasty.build().expect("a URL");
    all_are_free_again(&manager).await;
    let before = connections(&server);
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.sql("SELECT pg_reload_conf()");
    wait_for("the server waits for a standby", async || {
        manager.lock("probe").acquire().await.is_err()
    })
    .await;
    let begun = std::time::Instant::now();
    let over = || begun.elapsed() > 8 * SECOND;
    let most = most_connections(&server, &manager, over).await;
    assert!(most <= 2 * before.max(ALL), "{most} connections instead of {before}");
    // An operator may end the wait. Then the server says yes, and that no standby has confirmed it.
    let call = tokio::spawn(waits_long.lock("canceled").ttl(LONG).acquire());
    while !call.is_finished() {
        server.sql(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
             WHERE wait_event = 'SyncRep' AND query LIKE '%acquire%'",
        );
        tokio::time::sleep(ms(20)).await;
    }
    let refused = call.await.expect("no panic");
    let text = whole_text(refused.as_ref().expect_err("no standby has it"));
    assert!(text.contains("standby"), "{text}");
    server.sql("ALTER SYSTEM RESET synchronous_standby_names");
    server.sql("SELECT pg_reload_conf()");
    all_are_free_again(&manager).await;
    no_row_is_left(&server);
}

/// A server that is frozen takes connections and requests to cancel, and answers none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd1_a_frozen_server_finds_few_connections_when_it_goes_on() {
    let server = PostgresServer::start();
    // With that of a patient one it would not try again meanwhile.
    drop(patient(&server.url()).await);
    let hasty = impatient(&server.url()).connect_timeout(ms(500));
    let manager = hasty.build().expect("a URL");
    all_are_free_again(&manager).await;
    let before = connections(&server);
    server.stop();
    let begun = std::time::Instant::now();
    while begun.elapsed() < 8 * SECOND {
        assert_eq!(twenty(&manager).await, 0);
    }
    server.cont();
    let mut most = 0;
    while begun.elapsed() < 12 * SECOND {
        most = most.max(connections(&server));
    }
    assert!(most <= 2 * before.max(ALL), "{most} connections instead of {before}");
    all_are_free_again(&manager).await;
    no_row_is_left(&server);
}

/// A host that accepts connections and answers nothing costs its share of the time, once for a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd2_a_frozen_first_host_keeps_nobody_from_the_second() {
    let server = PostgresServer::start();
    let frozen = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let frozen_at = frozen.local_addr().expect("its address");
    let url = format!("postgres://distlock@{frozen_at},{}/postgres", server.addr());
    let manager = patient(&url).await;
    // All lanes are made at the host that answers.
    let mut accepted = 0;
    all_are_free_again(&manager).await;
    frozen.set_nonblocking(true).expect("a socket");
    while frozen.accept().is_ok() {
        accepted += 1;
    }
    assert_eq!(accepted, 1, "each connection was tried at the frozen host");
    no_row_is_left(&server);
}

/// Locks of one key beside a snapshot that keeps every dead row: the last costs as many pages as the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd7_an_old_snapshot_makes_no_lock_slower() {
    let server = Arc::new(PostgresServer::start());
    drop(connect(&server.url()).await);
    let session = server.clone();
    std::thread::spawn(move || {
        session.try_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(600)")
    });
    wait_for("there is a snapshot", async || {
        const SNAPSHOTS: &str =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        server.sql(SNAPSHOTS) == "1"
    })
    .await;
    let call = |token: &str, is_try: bool| {
        format!(
            "distlock.acquire('k', {token}, 1, 100000, 0, 1000, false, {is_try}, 0, distlock.started(), true)"
        )
    };
    let release = |token: &str| {
        format!("SELECT * INTO r FROM distlock.release('k', {token}, NULL, true); COMMIT;")
    };
    let [h, w, v] = ["h", "w", "v"].map(|who| format!("'{who}.' || n || '.1000s'"));
    // A free lock; one that is handed on to a waiter; and waiters that come and go before a lock that is held.
    let rounds = [
        format!("a := {}; COMMIT; {}", call(&h, true), release(&h)),
        format!(
            "a := {}; COMMIT; a := {}; COMMIT; {} a := {}; COMMIT; {}",
            call(&h, true),
            call(&w, false),
            release(&h),
            call(&w, false),
            release(&w)
        ),
        format!("a := {}; COMMIT; {}", call(&v, false), release(&v)),
    ];
    let pages = |text: &str| -> u64 {
        // Each lock asks for so many pages: a session's counters, which the planner's pages are not part of.
        const PAGES: &str = "SELECT sum(pg_stat_get_blocks_fetched(oid)) FROM pg_class
            WHERE relnamespace = 'distlock'::regnamespace AND relkind IN ('r', 'i')";
        let read = || {
            server.sql("SELECT pg_stat_force_next_flush()");
            server.sql(PAGES).parse::<u64>().expect("a number")
        };
        let before = read();
        server.sql(text);
        read() - before
    };
    for (number, round) in rounds.iter().enumerate() {
        if number == 2 {
            server.sql(&format!("SELECT {}", call("'holder.1.1000s'", true)));
        }
        let block = |first: u32, last: u32| {
            format!(
                "DO $$ DECLARE a bigint[]; r record; BEGIN FOR n IN {first}..{last} LOOP {round} END LOOP;
                 PERFORM pg_stat_force_next_flush(); END $$"
            )
        };
        let first = pages(&block(1, 300));
        server.sql(&block(301, 1700));
        let last = pages(&block(1701, 2000));
        assert!(
            last < 2 * first,
            "round {number}: {first} pages for the first, {last} for the last"
        );
    }
}

/// A role with fewer connections than a manager wants uses those that it gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd8_a_role_with_few_connections_takes_every_lock_and_the_limit_is_named() {
    let server = PostgresServer::start();
    drop(patient(&server.url()).await);
    server.sql("CREATE ROLE app LOGIN CONNECTION LIMIT 3; GRANT ALL ON SCHEMA distlock TO app");
    server.sql("GRANT ALL ON ALL TABLES IN SCHEMA distlock TO app");
    server.sql("GRANT ALL ON ALL SEQUENCES IN SCHEMA distlock TO app");
    let manager = patient(&url_of(&server, "app")).await;
    for n in 0..40 {
        let guard = manager.lock(format!("k{n}")).ttl(LONG).acquire().await;
        guard.expect("a lane is up").release().await.expect("a lane is up");
    }
    let refused = patient_builder(&url_of(&server, "app")).connect().await;
    let text = whole_text(refused.as_ref().expect_err("three are taken"));
    assert!(text.contains("too many connections") && text.contains("`connections`"), "{text}");
    drop(manager);
    no_row_is_left(&server);
}

/// A password that is bound to the certificate, as providers ask for it, is no use to one in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd9_a_password_is_bound_to_the_certificate() {
    let authority = Certificates::new();
    let server = PostgresServer::encrypted(&authority.issue("server", &["DNS:localhost"]));
    server.sql("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'hunter2'");
    server.sql(
        "COPY (SELECT 'local all all trust' UNION ALL SELECT 'host all distlock all trust'
            UNION ALL SELECT 'hostssl all app all scram-sha-256')
         TO PROGRAM 'cat > \"$PGDATA/pg_hba.conf\" || cat > pg_hba.conf'",
    );
    server.sql("SELECT pg_reload_conf()");
    let port = server.addr().port();
    let url = |role: &str, binding: &str| {
        format!(
            "postgres://{role}@localhost:{port}/postgres?sslmode=require&sslrootcert={}&channel_binding={binding}",
            authority.ca().display()
        )
    };
    for binding in ["require", "prefer", "disable"] {
        let manager = connect(&url("app:hunter2", binding)).await;
        held(&manager, "k").await.release().await.expect("it was held");
    }
    // Without a password there is nothing to bind.
    let refused = patient_builder(&url("distlock", "require")).connect().await;
    let text = whole_text(refused.as_ref().expect_err("it is not bound"));
    assert!(text.contains("channel binding"), "{text}");
    assert_eq!(backend(refused), BackendKind::Refused);
}

/// A URL that asks for it begins with TLS, and says which protocol follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd9_direct_tls_is_spoken_from_the_first_byte_on() {
    use tokio::io::AsyncReadExt as _;
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = server.local_addr().expect("its address").port();
    let authority = Certificates::new();
    let url = format!(
        "postgres://app@localhost:{port}/x?sslmode=require&sslnegotiation=direct&sslrootcert={}",
        authority.ca().display()
    );
    let manager = LockManager::connect_lazy(&url).expect("a URL");
    tokio::spawn(async move { manager.lock("k").acquire().await });
    let (mut socket, _) = server.accept().await.expect("it connects");
    let mut hello = vec![0; 2048];
    let length = socket.read(&mut hello).await.expect("it speaks first");
    assert_eq!(hello[0], 0x16, "no TLS");
    assert!(hello[..length].windows(10).any(|part| part == b"postgresql"));
}

/// Parameters that distlock does not have are named, with what to do; those of other clients of Postgres are common.
#[test]
fn fd9_a_parameter_that_is_not_known_is_named() {
    for (parameter, fix) in [
        ("gssencmode=disable", "gssencmode"),
        ("schema=shop", "schema `distlock`"),
        ("pgbouncer=true", "pgbouncer"),
        ("statement_cache_size=0", "statement_cache_size"),
        ("keepalives_idle=often", "keepalives_idle"),
    ] {
        let url = format!("postgres://shop:hunter2@host/x?{parameter}");
        let text = whole_text(&LockManager::connect_lazy(&url).expect_err("it is not known"));
        assert!(text.contains(fix) && !text.contains("hunter2"), "{text}");
    }
    for understood in ["sslrootcert=system", "sslmode=require&channel_binding=require"] {
        let url = format!("postgres://shop:hunter2@host/x?{understood}");
        LockManager::connect_lazy(&url).expect("it is understood");
    }
}

/// Sessions that listen: each holds a lock of its own while it does.
fn listening(server: &PostgresServer) -> usize {
    const LISTENING: &str = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE locktype = 'advisory' AND granted AND a.state = 'idle' AND a.application_name = 'distlock'";
    server.sql(LISTENING).parse().expect("a number")
}

/// Each message costs the server time for every session that listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd10_who_neither_waits_nor_holds_a_lock_for_long_does_not_listen() {
    let server = PostgresServer::start();
    let managers =
        [connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    for manager in &managers {
        held(manager, "k").await.release().await.expect("it was held");
    }
    wait_for("nobody listens", async || listening(&server) == 0).await;
    let guard = held(&managers[0], "k").await;
    let waiting = waits(&managers[1], "k");
    wait_for("holder and waiter listen", async || listening(&server) == 2).await;
    guard.release().await.expect("it was held");
    served(waiting).await.release().await.expect("it was held");
    wait_for("nobody listens any more", async || listening(&server) == 0).await;
    // And again.
    let guard = held(&managers[2], "k").await;
    let waiting = waits(&managers[1], "k");
    wait_for("it waits", async || server.left().len() == 2).await;
    guard.release().await.expect("it was held");
    served(waiting).await.release().await.expect("it was held");
    no_row_is_left(&server);
}

/// Behind a pooler no message comes: waiters look, soon at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd10_without_messages_a_lock_is_handed_on_all_the_same() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::before(&server, 8);
    let url = format!("{}?listen=false", server.url_at(pooler.addr()));
    let mut managers = Vec::new();
    for _ in 0..8 {
        managers.push(patient(&url).await);
    }
    let begun = std::time::Instant::now();
    let mut tasks = JoinSet::new();
    for manager in managers.clone() {
        tasks.spawn(async move {
            for _ in 0..50 {
                let guard = manager.lock("k").ttl(LONG).wait(LONG).acquire().await;
                guard.expect("its turn comes").release().await.expect("it was held");
            }
        });
    }
    tasks.join_all().await;
    // 400 locks: a few seconds, and 100 with looks of a second.
    assert!(begun.elapsed() < 75 * SECOND, "{:?}", begun.elapsed());
    no_row_is_left(&server);
}

/// A server without room for another message refuses the commit that would send it. Waiters look by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd11_a_lock_is_freed_although_the_server_has_no_room_for_messages() {
    let server = PostgresServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = held(&one, "k").await;
    let waiting = waits(&other, "k");
    wait_for("it waits", async || server.left().len() == 2).await;
    // As the server does: at the commit, and in these words.
    server.sql(
        "CREATE TABLE public.full_queue (n integer);
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
         END $$;
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON public.full_queue DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION refuse();
         CREATE OR REPLACE FUNCTION distlock.tell(p_kind text, p_token text, p_name text) RETURNS void
         LANGUAGE plpgsql AS $$ BEGIN
             IF current_setting('distlock.quiet', true) = 'on' THEN RETURN; END IF;
             INSERT INTO public.full_queue VALUES (1);
         END $$",
    );
    guard.release().await.expect("it was held");
    served(waiting).await.release().await.expect("it was held");
    no_row_is_left(&server);
}

/// It reads whole tables: once a minute is enough for all processes together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd11_rows_of_the_dead_are_looked_for_once_a_minute_by_all_processes_together() {
    let server = PostgresServer::start();
    drop(connect(&server.url()).await);
    server.sql("SELECT distlock.sweep()");
    server.sql("INSERT INTO distlock.lease VALUES ('old', 'x.1.1000s', 1, 1)");
    server.sql("SELECT distlock.sweep(60000)");
    assert_eq!(server.left().len(), 1);
    server.sql("SELECT distlock.sweep(0)");
    no_row_is_left(&server);
}
