//! What `connect` says of a URL that does not fit what is there, and how soon.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use distlock::LockError;
use distlock_testkit::{
    Certificates, Cluster, Log, Mode, Proxy, Quorum, RedisServer, SECOND, Sentinels,
    in_own_process, patient_builder, this_test, wait_for, whole_text,
};

/// In every URL with a password.
const PASSWORD: &str = "hu%2Fsh%25";
const SECRETS: [&str; 2] = [PASSWORD, "hu/sh%"];

/// All there is, in plain text and with TLS.
struct World {
    certificates: Certificates,
    watched: Sentinels,
    cluster: Cluster,
    two: Quorum,
    tls: RedisServer,
    tls_watched: Sentinels,
    tls_cluster: Cluster,
}

impl World {
    fn start() -> Self {
        let certificates = Certificates::new();
        let local = certificates.issue("local", &["DNS:localhost", "IP:127.0.0.1"]);
        thread::scope(|scope| {
            let watched = scope.spawn(|| Sentinels::builder(1).start());
            let tls_watched = scope.spawn(|| Sentinels::builder(1).replicas(0).tls(&local).start());
            let cluster = scope.spawn(|| Cluster::start(1, 0));
            let tls_cluster = scope.spawn(|| Cluster::builder(1).tls(&local).start());
            Self {
                two: Quorum::of(2),
                tls: RedisServer::builder().tls(&local).start(),
                watched: watched.join().expect("they start"),
                tls_watched: tls_watched.join().expect("they start"),
                cluster: cluster.join().expect("it starts"),
                tls_cluster: tls_cluster.join().expect("it starts"),
                certificates,
            }
        })
    }

    /// `redlock://`, at two servers that are right and this one.
    fn third(&self, addr: SocketAddr) -> String {
        let nodes = self.two.nodes.iter().map(RedisServer::addr).chain([addr]);
        Quorum::url_over(nodes, "guard=0s")
    }

    /// URLs at servers of another kind, and what the error says.
    fn wrong(&self) -> Vec<(String, &'static str)> {
        let (primary, replica) = (self.watched.server(0).addr(), self.watched.server(1).addr());
        let (sentinel, node, tls) =
            (self.watched.sentinel(0).addr(), self.cluster.addr(0), self.tls.addr());
        let ca = format!("ca={}&tls_roots=none", self.certificates.ca().display());
        let mut wrong = vec![
            (format!("redis://{sentinel}"), "redis-sentinel://"),
            (format!("redis://{node}"), "redis-cluster://"),
            (format!("redis://{replica}"), "name its primary"),
            (format!("redis-cluster://{primary}"), "redis://"),
            (format!("redis-cluster://{replica}"), "redis://"),
            (format!("redis-cluster://{sentinel}"), "redis-sentinel://"),
            (format!("redis-sentinel://{primary}/shop"), "redis://"),
            (format!("redis-sentinel://{node}/shop"), "redis-cluster://"),
            (
                format!("redis-sentinel://{sentinel}/shpo"),
                "no sentinel knows a primary named `shpo`",
            ),
            (self.third(replica), "name its primary"),
            (self.third(node), "redis-cluster://"),
            (self.third(sentinel), "redis-sentinel://"),
            (self.third(sentinel), "(that was "),
        ];
        // One of the other kind in every place.
        let (tls_sentinel, tls_node) =
            (self.tls_watched.sentinel(0).addr(), self.tls_cluster.addr(0));
        for (plain, encrypted) in [(primary, tls), (sentinel, tls_sentinel), (node, tls_node)] {
            for (scheme, path) in
                [("redis", ""), ("redis-cluster", ""), ("redis-sentinel", "/shop")]
            {
                wrong.push((format!("{scheme}://{encrypted}{path}"), "rediss://"));
                let scheme = scheme.replace("redis", "rediss");
                wrong.push((format!("{scheme}://{plain}{path}?{ca}"), "does not speak TLS"));
            }
        }
        wrong.push((format!("rediss://{tls_sentinel}?{ca}"), "redis-sentinel://"));
        wrong.push((format!("rediss-cluster://{tls}?{ca}"), "redis://"));
        wrong.push((format!("rediss-sentinel://{tls_node}/shop?{ca}"), "redis-cluster://"));
        wrong.push((format!("rediss://{tls}?tls_roots=none&ca={}", self.foreign()), "ca=PATH"));
        wrong
    }

    /// Another authority.
    fn foreign(&self) -> String {
        let path = self.certificates.ca().with_file_name("foreign.pem");
        if !path.exists() {
            std::fs::copy(Certificates::new().ca(), &path).expect("a copy");
        }
        path.display().to_string()
    }
}

/// What is no Redis at all.
fn strangers(ca: &str) -> Vec<(String, &'static str)> {
    let mut wrong = Vec::new();
    let http =
        stranger("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    // So does a Postgres.
    let mute = stranger("");
    for at in [http, stranger("SSH-2.0-OpenSSH_9.2p1\r\n"), mute] {
        for (scheme, path) in [("redis", ""), ("redis-cluster", ""), ("redis-sentinel", "/shop")] {
            wrong.push((format!("{scheme}://{at}{path}"), "check host and port"));
        }
    }
    wrong.push((format!("rediss://{http}?{ca}"), "is not TLS"));
    wrong.push((format!("rediss://{mute}?{ca}"), "closed in the TLS handshake"));
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    let nobody = nobody.expect("a port");
    for (scheme, path) in [("redis", ""), ("redis-cluster", ""), ("redis-sentinel", "/shop")] {
        wrong.push((format!("{scheme}://{nobody}{path}"), "nothing listens there"));
    }
    wrong.push(("redis+unix:///no/such/socket".to_owned(), "nothing listens there"));
    // The name is reserved for this.
    wrong.push(("redis://no-such-host.invalid".to_owned(), "check the host's name"));
    wrong
}

/// Answers the first message of every client with this, and hangs up.
fn stranger(says: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 1024]);
            let _ = client.write_all(says.as_bytes());
        }
    });
    addr
}

/// The same URL with a user's password; the servers here ask for none, which is no reason to say less.
fn with_password(url: &str) -> String {
    url.replacen("://", &format!("://:{PASSWORD}@"), 1)
}

async fn refused(url: &str) -> (LockError, Duration) {
    refused_once_in(1, url).await
}

/// Of so many attempts.
async fn refused_once_in(tries: usize, url: &str) -> (LockError, Duration) {
    for _ in 0..tries {
        let begun = Instant::now();
        if let Err(error) = patient_builder(url).connect().await {
            return (error, begun.elapsed());
        }
    }
    panic!("{url} is accepted")
}

/// Every scheme at every other kind of server, TLS where there is none and the other way about, and strangers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_wrong_url_is_refused_within_a_second_with_the_mend_and_without_the_password() {
    // In a process of its own: what is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let world = tokio::task::spawn_blocking(World::start).await.expect("they start");
    let mut wrong = world.wrong();
    wrong.extend(strangers(&format!("ca={}", world.certificates.ca().display())));
    let mut urls = Vec::new();
    for (url, mend) in wrong {
        // Of a quorum the first server would be the one that asks for none.
        if !url.starts_with("redis+unix") && !url.starts_with("redlock") {
            urls.push((with_password(&url), mend));
        }
        // A handshake comes before any password.
        if !url.starts_with("rediss") {
            urls.push((url, mend));
        }
    }
    let (mut took, mut texts) = (Vec::new(), String::new());
    for some in urls.chunks(4) {
        let calls = some.iter().map(|(url, _)| {
            let url = url.clone();
            tokio::spawn(async move { refused(&url).await })
        });
        for ((url, mend), call) in some.iter().zip(calls.collect::<Vec<_>>()) {
            let (error, time) = call.await.expect("no panic");
            let text = whole_text(&error);
            assert!(text.contains(mend), "{url}: {mend:?} is not in: {text}");
            texts += &text;
            took.push((time, url));
        }
    }
    texts += &log.text();
    for secret in SECRETS {
        assert!(!texts.contains(secret), "the password is in a text");
    }
    took.sort();
    let (median, (longest, url)) = (took[took.len() / 2].0, took.last().expect("some"));
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("{} URLs: median {median:.0?}, at most {longest:.0?}: {url}", took.len());
    }
    assert!(median < SECOND, "{median:?}");
    assert!(*longest < 10 * SECOND, "{url}: {longest:?}");
}

/// A password for a server that asks for none, another one, and none where one is wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_let_in_is_told_whose_password_it_is() {
    let all = tokio::task::spawn_blocking(|| {
        Sentinels::builder(1).replicas(0).sentinel_password("hu/sh%").start()
    });
    let all = all.await.expect("they start");
    let (server, sentinel) = (all.server(0).addr(), all.sentinel(0).addr());
    for (url, mend) in [
        (format!("redis://:{PASSWORD}@{server}"), "leave user and password out"),
        (format!("redis-sentinel://{sentinel}/shop"), "`sentinel_pass`"),
        (format!("redis-sentinel://{sentinel}/shop?sentinel_pass=x{PASSWORD}"), "`sentinel_pass`"),
        (
            format!("redis-sentinel://:{PASSWORD}@{sentinel}/shop?sentinel_pass={PASSWORD}"),
            "leave user and password out",
        ),
    ] {
        let (error, _) = refused(&url).await;
        let text = whole_text(&error);
        assert!(text.contains(mend), "{url}: {mend:?} is not in: {text}");
        assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
    }
}

/// By other spellings than its own, which cannot be seen in the URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_listed_twice_counts_once() {
    let all =
        tokio::task::spawn_blocking(|| (Sentinels::builder(3).replicas(0).start(), Quorum::of(3)));
    let (all, quorum) = all.await.expect("they start");
    let nodes = [quorum.nodes[0].addr(), quorum.nodes[1].addr()];
    for other in ["localhost", "LocalHost", "127.1", "[::ffff:127.0.0.1]"] {
        let url =
            format!("redlock://{},{},{other}:{}?guard=0s", nodes[0], nodes[1], nodes[0].port());
        // A server that answers a second after a majority is not waited for, as on a busy machine.
        let (error, took) = refused_once_in(10, &url).await;
        let text = whole_text(&error);
        assert!(text.contains("are the same server"), "{url}: {text}");
        assert!(took < 10 * SECOND, "{url}: {took:?}");
    }
    // Sentinels may be named twice, unlike servers of a quorum: they name each other too, by address where
    // the URL has host names.
    let port = |sentinel: usize| all.sentinel(sentinel).addr().port();
    let [one, two, three] = [port(0), port(1), port(2)];
    for hosts in [
        format!("127.0.0.1:{one},localhost:{one}"),
        format!("localhost:{one},localhost:{two},localhost:{three}"),
        format!("127.0.0.1:{three},localhost:{two},127.1:{one},localhost:{one}"),
    ] {
        for _ in 0..3 {
            let begun = Instant::now();
            let manager = patient_builder(&format!("redis-sentinel://{hosts}/shop")).connect();
            let manager = manager.await.unwrap_or_else(|error| panic!("{hosts}: {error}"));
            assert!(begun.elapsed() < 10 * SECOND, "{hosts}: {:?}", begun.elapsed());
            // By then they have announced each other.
            tokio::time::sleep(Duration::from_millis(100)).await;
            manager.lock("k").acquire().await.expect("a lock").release().await.expect("held");
        }
    }
}

/// A server that takes connections and says nothing is none of a majority's business, and the first lock's neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_quorum_that_stands_still_is_not_waited_for_at_the_start() {
    let quorum = tokio::task::spawn_blocking(|| Quorum::of(3)).await.expect("they start");
    let silent = Proxy::to(quorum.nodes[2].addr());
    silent.set(Mode::Freeze);
    let nodes = [quorum.nodes[0].addr(), quorum.nodes[1].addr(), silent.addr()];
    let begun = Instant::now();
    let manager = patient_builder(&Quorum::url_over(nodes, "guard=0s")).connect().await;
    let manager = manager.expect("two are a majority");
    // 30 s, if it was waited for as long as a connection may take.
    assert!(begun.elapsed() < 10 * SECOND, "{:?}", begun.elapsed());
    manager.lock("k").acquire().await.expect("a lock").release().await.expect("it was held");
    silent.set(Mode::Pass);
    wait_for("it is asked as well", async || format!("{manager:?}").contains("up: 3")).await;
}
