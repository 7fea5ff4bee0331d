//! TLS: which authority we trust, which certificate we show, the error for each mistake, and that a
//! connection with TLS works like any other.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use distlock::{BackendKind, DrivenBy, LockError, LockManager, TlsOptions};
use distlock_testkit::{
    Certificate, Certificates, LONG, Log, Mode, Proxy, RedisServer, SECOND, connect,
    in_own_process, ms, notified, patient_builder, served, this_test, wait_for, wait_until, waits,
    whole_text,
};

static OURS: LazyLock<Certificates> = LazyLock::new(Certificates::new);
/// For `localhost` and the address that its name means.
static LOCAL: LazyLock<Certificate> =
    LazyLock::new(|| OURS.issue("local", &["DNS:localhost", "IP:127.0.0.1"]));

fn server() -> RedisServer {
    RedisServer::builder().password("hush-hush").tls(&LOCAL).start()
}

fn pem(path: &Path) -> Vec<u8> {
    fs::read(path).expect("a file of the test")
}

/// What `connect` and a lock of a lazy manager are refused with, at once: the same, it lasts, and it
/// contains no password.
async fn refused(url: &str, tls: Option<TlsOptions>, mend: &str) -> String {
    let builder = || match &tls {
        Some(tls) => patient_builder(url).tls(tls.clone()),
        None => patient_builder(url),
    };
    let lazy = builder().build().expect("no I/O yet");
    let begun = Instant::now();
    let error = builder().connect().await.expect_err("it must be refused");
    let took = begun.elapsed();
    let later = lazy.lock("k").ttl(LONG).wait(LONG).acquire().await.expect_err("so is a lock");
    let mut texts = String::new();
    for error in [error, later] {
        let text = whole_text(&error);
        assert!(text.contains(mend), "{mend:?} is not in: {text}");
        assert!(!text.contains("hush"), "{text}");
        assert!(
            matches!(error, LockError::Backend { kind: BackendKind::Refused, .. }),
            "{error:?}"
        );
        texts += &text;
    }
    assert!(took < 10 * SECOND, "only after {took:?}: {texts}");
    texts
}

async fn locks_and_waits(manager: &LockManager) {
    // What was taken before an outage may have to expire first.
    let guard = manager.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("it is free");
    let next = waits(manager, "k");
    wait_for("it waits", async || manager.status().waiting == 1).await;
    guard.release().await.expect("it was held");
    served(next).await.release().await.expect("it was held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_taken_waited_for_and_freed_by_name_and_by_address() {
    let server = server();
    for host in ["localhost", "127.0.0.1"] {
        // Notified: the subscription has TLS as well.
        let (one, other) =
            (connect(&server.tls_url(host)).await, connect(&server.tls_url(host)).await);
        locks_and_waits(&one).await;
        let guard = one.lock("k").ttl(LONG).acquire().await.expect("it is free");
        let next = waits(&other, "k");
        wait_for("it waits", async || other.status().waiting == 1).await;
        guard.release().await.expect("it was held");
        served(next).await.release().await.expect("it was held");
    }
    let plain = server.cli::<String>(&["CLIENT", "LIST"]);
    assert!(!plain.is_empty());
    wait_until("nothing is left", || server.lock_keys().is_empty());
}

#[tokio::test]
async fn a_lease_is_renewed_over_tls() {
    let server = server();
    let manager = connect(&server.tls_url("localhost")).await;
    let guard = manager.lock("k").ttl(3 * SECOND).acquire().await.expect("it is free");
    tokio::time::sleep(7 * SECOND).await;
    assert!(guard.is_held());
    guard.release().await.expect("it was held all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_over_tls() {
    let server = server();
    let managers =
        [connect(&server.tls_url("localhost")).await, connect(&server.tls_url("localhost")).await];
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let tasks: Vec<_> = (0..20)
        .map(|task| {
            let (manager, count) = (managers[task % 2].clone(), count.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard =
                        manager.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("a turn");
                    let read = count.load(std::sync::atomic::Ordering::SeqCst);
                    tokio::time::sleep(ms(1)).await;
                    count.store(read + 1, std::sync::atomic::Ordering::SeqCst);
                    guard.release().await.expect("it was held");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 200);
}

#[tokio::test]
async fn options_of_the_builder_do_what_those_of_the_url_do() {
    let server = RedisServer::builder()
        .args(["--tls-auth-clients", "yes"])
        .tls(&OURS.issue("elsewhere", &["DNS:locks.internal"]))
        .start();
    let client = OURS.issue("builder-client", &["DNS:me"]);
    let all = TlsOptions::new()
        .ca_pem(pem(&OURS.ca()))
        .client_pem(pem(&client.cert), pem(&client.key))
        .server_name("locks.internal")
        .no_system_roots();
    assert!(!format!("{all:?}").contains("BEGIN"));
    let url = format!("rediss://{}", server.addr());
    let manager = patient_builder(&url).tls(all).connect().await.expect("all is said");
    locks_and_waits(&manager).await;
    let (ca, Certificate { cert, key, .. }) = (OURS.ca(), client);
    let (ca, cert, key) = (ca.display(), cert.display(), key.display());
    let url =
        format!("{url}?ca={ca}&cert={cert}&key={key}&server_name=locks.internal&tls_roots=none");
    locks_and_waits(&connect(&url).await).await;
}

/// Fault: B14.
#[tokio::test]
async fn an_unknown_authority_is_refused_and_named_as_the_reason() {
    let server = server();
    let url = format!("rediss://:hush-hush@localhost:{}", server.addr().port());
    refused(&url, None, "ca=PATH").await;
    let foreign = Certificates::new();
    refused(
        &url,
        Some(TlsOptions::new().ca_pem(pem(&foreign.ca()))),
        "no authority that is trusted",
    )
    .await;
}

/// Fault: B14.
#[tokio::test]
async fn a_wrong_name_is_refused_and_both_names_are_told() {
    let other = OURS.issue("other", &["DNS:locks.example.org"]);
    let server = RedisServer::builder().password("hush-hush").tls(&other).start();
    let text = refused(&server.tls_url("localhost"), None, "`server_name`").await;
    assert!(text.contains("localhost") && text.contains("locks.example.org"), "{text}");
    let named = format!("{}&server_name=locks.example.org", server.tls_url("localhost"));
    locks_and_waits(&connect(&named).await).await;
}

/// Fault: B14.
#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let expired = OURS.issue_expired("expired", &["DNS:localhost"]);
    let server = RedisServer::builder().password("hush-hush").tls(&expired).start();
    refused(&server.tls_url("localhost"), None, "expired").await;
}

/// Fault: B14.
#[tokio::test]
async fn a_server_that_wants_a_client_certificate_says_so_and_takes_one_of_its_authority() {
    let server = RedisServer::builder()
        .password("hush-hush")
        .args(["--tls-auth-clients", "yes"])
        .tls(&LOCAL)
        .start();
    let url = server.tls_url("localhost");
    refused(&url, None, "wants a certificate of its clients: `cert=PATH&key=PATH`").await;
    let foreign = Certificates::new().issue("stranger", &["DNS:me"]);
    let of = |Certificate { cert, key, .. }: Certificate| {
        TlsOptions::new().ca_pem(pem(&OURS.ca())).client_pem(pem(&cert), pem(&key))
    };
    let url = format!("rediss://:hush-hush@localhost:{}", server.addr().port());
    drop(foreign);
    let stranger = Certificates::new();
    refused(
        &url,
        Some(of(stranger.issue("me", &["DNS:me"]))),
        "did not accept this client's certificate",
    )
    .await;
    let old = OURS.issue_expired("old", &["DNS:me"]);
    refused(&url, Some(of(old)), "did not accept this client's certificate").await;
    let manager = patient_builder(&url).tls(of(OURS.issue("client", &["DNS:me"])));
    locks_and_waits(&manager.connect().await.expect("it is theirs")).await;
}

#[tokio::test]
async fn tls_at_a_port_for_plain_text_is_refused() {
    for server in [RedisServer::start(), RedisServer::builder().password("hush-hush").start()] {
        let url = format!(
            "rediss://:hush-hush@localhost:{}?ca={}",
            server.addr().port(),
            OURS.ca().display()
        );
        refused(&url, None, "does not speak TLS at this port").await;
    }
}

#[tokio::test]
async fn plain_text_at_a_port_for_tls_is_an_error_that_names_the_scheme() {
    let server = server();
    let begun = Instant::now();
    let error = patient_builder(&format!("redis://:hush-hush@{}", server.addr()));
    let error = error.connect().await.expect_err("it is a port for TLS");
    let took = begun.elapsed();
    let text = whole_text(&error);
    assert!(text.contains("use rediss://"), "{text}");
    assert!(!text.contains("hush"), "{text}");
    assert!(took < 10 * SECOND, "{took:?}");
}

/// A load balancer that accepts and says nothing, for example.
#[tokio::test]
async fn a_handshake_without_an_answer_ends_with_the_time_to_connect() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("rediss://{}", silent.local_addr().expect("bound"));
    let builder = LockManager::builder().url(url).connect_timeout(ms(700));
    let error = builder.connect().await.expect_err("nobody answers");
    assert!(matches!(error, LockError::Backend { kind: BackendKind::TimedOut, .. }), "{error:?}");
}

#[tokio::test]
async fn what_is_wrong_with_certificates_is_said_when_the_manager_is_made() {
    let client = OURS.issue("made", &["DNS:me"]);
    let other = OURS.issue("made-other", &["DNS:me"]);
    let made = |tls: TlsOptions| match patient_builder("rediss://:hush-hush@h").tls(tls).build() {
        Ok(_) => panic!("it cannot be used"),
        Err(error) => whole_text(&error),
    };
    let (cert, key) = (pem(&client.cert), pem(&client.key));
    for (tls, words) in [
        (TlsOptions::new().ca_pem("hush"), "no certificate in PEM"),
        (TlsOptions::new().client_pem("hush", key.clone()), "no certificate in PEM"),
        (TlsOptions::new().client_pem(cert.clone(), "hush"), "no private key in PEM"),
        (TlsOptions::new().client_pem(cert, pem(&other.key)), "cannot be used together"),
        (TlsOptions::new().no_system_roots(), "no authority is trusted"),
        (TlsOptions::new().server_name("hush hush"), "neither a host's name nor an address"),
    ] {
        let text = made(tls);
        assert!(text.contains(words), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
    let url = |url: &str| whole_text(&LockManager::connect_lazy(url).expect_err("no such file"));
    assert!(url("rediss://h?ca=/no/such.pem").contains("/no/such.pem"));
    let twice = patient_builder("rediss://h?server_name=a").tls(TlsOptions::new()).build();
    assert!(whole_text(&twice.expect_err("given twice")).contains("given twice"));
    let plain = patient_builder("redis://h").tls(TlsOptions::new()).build();
    assert!(whole_text(&plain.expect_err("not encrypted")).contains("rediss://"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_the_connection_has_tls_again() {
    let server = server();
    let proxy = Proxy::to(server.addr());
    let url =
        format!("rediss://:hush-hush@localhost:{}?ca={}", proxy.addr().port(), OURS.ca().display());
    let builder = LockManager::builder().url(url).command_timeout(2 * SECOND);
    let manager = notified(builder.connect().await.expect("connect")).await;
    let guard = manager.lock("held").ttl(LONG).acquire().await.expect("it is free");
    for mode in [Mode::Reset, Mode::Freeze, Mode::CutDown(1000)] {
        proxy.set(mode);
        let _ = manager.lock("k").ttl(LONG).wait(ms(300)).acquire().await;
        proxy.set(Mode::Pass);
        locks_and_waits(&manager).await;
    }
    guard.release().await.expect("it was held all the time");
    let server = server.blocking(|server| server.restart()).await;
    locks_and_waits(&manager).await;
    drop(server);
}

/// A busy connection moves to its callers' reactor and back, in the middle of TLS records.
#[test]
fn a_busy_connection_with_tls_changes_reactor_and_loses_nothing() {
    let server = server();
    let manager = patient_builder(&server.tls_url("localhost")).build().expect("no I/O yet");
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let begun = Instant::now();
            let one = async |task: u32| {
                let until = |locks| locks < 30 || manager.status().driven_by != DrivenBy::Callers;
                let mut locks = 0;
                while until(locks) {
                    assert!(begun.elapsed() < 30 * SECOND, "it never moved");
                    let guard = manager.lock(format!("k{task}")).ttl(LONG).acquire().await;
                    guard.expect("nobody else").release().await.expect("it was held");
                    locks += 1;
                }
            };
            tokio::join!(
                one(0),
                one(1),
                one(2),
                one(3),
                one(4),
                one(5),
                one(6),
                one(7),
                one(8),
                one(9)
            );
        });
        // That runtime is gone: the manager's own thread has it back.
        wait_until("it is driven here", || manager.status().driven_by == DrivenBy::Manager);
    }
    wait_until("nothing is left", || server.lock_keys().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_is_in_any_text() {
    // In a process of its own: what is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let mut server = server();
    let good = server.tls_url("localhost");
    let wrong = good.replace("hush-hush", "hush-wrong");
    let untrusted = good.split('?').next().expect("a URL").to_owned();
    let mut texts = String::new();
    for url in [&wrong, &untrusted] {
        let lazy = LockManager::connect_lazy(url).expect("a URL");
        for error in [
            LockManager::connect(url).await.err(),
            lazy.lock("k").wait(ms(50)).acquire().await.err(),
        ] {
            texts += &whole_text(&error.expect("refused"));
        }
        texts += &format!("{lazy:?} {:?}", LockManager::builder().url(url.as_str()));
    }
    let manager = notified(LockManager::connect(&good).await.expect("connect")).await;
    texts += &format!("{manager:?} {:?}", manager.status());
    server.kill9();
    wait_for("it is seen", async || !manager.status().connected).await;
    texts += &whole_text(&manager.lock("k").acquire().await.expect_err("it is down"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    texts += &log.text();
    assert!(!texts.contains("hush"), "{texts}");
}
