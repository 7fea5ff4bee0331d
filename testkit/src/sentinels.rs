//! A primary, its replicas, and sentinels that let one follow the other.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::{Certificate, Proxy, RedisServer, RedisServerBuilder, wait_until, wait_within};

/// What the sentinels call the primary.
const NAME: &str = "shop";

/// Real servers with replication, and real sentinels over them, on free ports of 127.0.0.1. A primary that is
/// silent for a second is followed by a replica. All of them are killed when this is dropped.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Watched>,
    sentinels: Vec<RedisServer>,
}

#[derive(Debug)]
struct Watched {
    server: RedisServer,
    proxy: Option<Proxy>,
}

/// What sentinels are started with; see [`Sentinels::builder`].
#[derive(Debug, Clone)]
pub struct SentinelsBuilder {
    sentinels: usize,
    replicas: usize,
    proxied: bool,
    password: Option<String>,
    sentinel_password: Option<String>,
    tls: Option<Certificate>,
}

impl SentinelsBuilder {
    /// How many replicas the primary has. Default: 1.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Puts each server behind a [`Proxy`], which is where the sentinels and the other servers find it.
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Every server asks for this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Every sentinel asks for this password.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// All of them speak TLS, to each other as well.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.tls = Some(certificate.clone());
        self
    }

    /// Starts them; returns when the replicas have the primary's data and every sentinel knows all others.
    pub fn start(self) -> Sentinels {
        let servers: Vec<_> = (0..=self.replicas)
            .map(|_| {
                let settings = self.clone();
                thread::spawn(move || settings.start_server())
            })
            .collect();
        let servers: Vec<_> =
            servers.into_iter().map(|one| one.join().expect("a server")).collect();
        let primary = servers[0].addr();
        for replica in &servers[1..] {
            let (ip, port) = (primary.ip().to_string(), primary.port().to_string());
            replica.server.cli::<()>(&["REPLICAOF", &ip, &port]);
        }
        let sentinels: Vec<_> = (0..self.sentinels)
            .map(|_| {
                let settings = self.clone();
                thread::spawn(move || settings.start_sentinel(primary))
            })
            .collect();
        let sentinels = sentinels.into_iter().map(|one| one.join().expect("a sentinel")).collect();
        let all = Sentinels { servers, sentinels };
        all.wait_until_whole(self.replicas);
        all
    }

    fn start_server(&self) -> Watched {
        let mut builder = RedisServer::builder()
            // A replica that waits for others before it copies the data cannot follow meanwhile.
            .args(["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]);
        if let Some(password) = &self.password {
            builder = builder.password(password).args(["--masterauth", password]);
        }
        let server = self.with_tls(builder).start();
        let proxy = self.proxied.then(|| Proxy::to(server.addr()));
        let watched = Watched { server, proxy };
        watched.announce();
        watched
    }

    fn start_sentinel(&self, primary: SocketAddr) -> RedisServer {
        let (ip, port, quorum) = (primary.ip(), primary.port(), self.sentinels / 2 + 1);
        let mut config = format!(
            "sentinel monitor {NAME} {ip} {port} {quorum}\n\
             sentinel down-after-milliseconds {NAME} 1000\n\
             sentinel failover-timeout {NAME} 3000\n"
        );
        if let Some(password) = &self.password {
            config += &format!("sentinel auth-pass {NAME} {password}\n");
        }
        let mut builder = RedisServer::builder().sentinel(config);
        if let Some(password) = &self.sentinel_password {
            // They ask each other for it as well.
            builder = builder.password(password).args(["--sentinel", "sentinel-pass", password]);
        }
        self.with_tls(builder).start()
    }

    fn with_tls(&self, builder: RedisServerBuilder) -> RedisServerBuilder {
        match &self.tls {
            Some(certificate) => builder.tls(certificate).args(["--tls-replication", "yes"]),
            None => builder,
        }
    }
}

impl Watched {
    /// Where clients, sentinels and other servers find it.
    fn addr(&self) -> SocketAddr {
        self.proxy.as_ref().map_or(self.server.addr(), Proxy::addr)
    }

    /// It is known by the address of its proxy.
    fn announce(&self) {
        if let Some(proxy) = &self.proxy {
            let port = proxy.addr().port().to_string();
            self.server.cli::<()>(&["CONFIG", "SET", "replica-announce-port", &port]);
        }
    }
}

impl Sentinels {
    /// So many sentinels, a primary and a replica.
    pub fn start(sentinels: usize) -> Self {
        Self::builder(sentinels).start()
    }

    /// So many sentinels, with other settings.
    pub fn builder(sentinels: usize) -> SentinelsBuilder {
        SentinelsBuilder {
            sentinels,
            replicas: 1,
            proxied: false,
            password: None,
            sentinel_password: None,
            tls: None,
        }
    }

    fn wait_until_whole(&self, replicas: usize) {
        let (replicas, others) = (replicas.to_string(), (self.sentinels.len() - 1).to_string());
        wait_until("the sentinels know all of them", || {
            self.sentinels.iter().all(|sentinel| {
                let says: Vec<String> = sentinel.cli(&["SENTINEL", "MASTER", NAME]);
                let is = |name: &str, value: &str| {
                    says.chunks_exact(2).any(|field| field[0] == name && field[1] == value)
                };
                is("num-slaves", &replicas)
                    && is("num-other-sentinels", &others)
                    && is("flags", "master")
            })
        });
        wait_until("the replicas have the data", || {
            self.servers[1..].iter().all(|replica| {
                let info: String = replica.server.cli(&["INFO", "replication"]);
                info.contains("master_link_status:up") && info.contains("master_sync_in_progress:0")
            })
        });
    }

    /// The URL with the name of the primary, without a password.
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// The URL with another name of the primary.
    pub fn url_of(&self, name: &str) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|one| one.addr().to_string()).collect();
        format!("redis-sentinel://{}/{name}", hosts.join(","))
    }

    /// One of the servers: 0 is the first primary.
    pub fn server(&self, number: usize) -> &RedisServer {
        &self.servers[number].server
    }

    /// The same, to be killed or started again.
    pub fn server_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.servers[number].server
    }

    /// The network in front of a server, if there is one.
    pub fn proxy(&self, number: usize) -> &Proxy {
        self.servers[number].proxy.as_ref().expect("started with `proxied`")
    }

    /// One of the sentinels.
    pub fn sentinel(&self, number: usize) -> &RedisServer {
        &self.sentinels[number]
    }

    /// The same, to be killed.
    pub fn sentinel_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.sentinels[number]
    }

    /// The number of the server that a sentinel names.
    pub fn named_by(&self, sentinel: usize) -> Option<usize> {
        let args = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
        let named: Vec<String> = self.sentinels[sentinel].try_cli(&args).ok()?;
        let port: u16 = named.get(1)?.parse().ok()?;
        self.servers.iter().position(|one| one.addr().port() == port)
    }

    /// After how long a silence the sentinels take the primary for dead. At first: a second.
    pub fn set_down_after(&self, silence: Duration) {
        let silence = silence.as_millis().to_string();
        for sentinel in &self.sentinels {
            sentinel.cli::<()>(&["SENTINEL", "SET", NAME, "down-after-milliseconds", &silence]);
        }
    }

    /// Whether a server takes itself for the primary, as far as it says: one that is made a replica cuts its
    /// clients off.
    pub fn is_primary(&self, server: usize) -> bool {
        let info = self.server(server).try_cli::<String>(&["INFO", "replication"]);
        info.is_ok_and(|info| info.contains("role:master"))
    }

    /// Waits until a sentinel names another server than this one; returns which.
    #[track_caller]
    pub fn wait_for_another(&self, sentinel: usize, than: usize) -> usize {
        let mut named = None;
        // One that was kept waiting for two seconds itself trusts nothing for thirty (TILT).
        wait_within(Duration::from_secs(90), "a sentinel names another primary", || {
            named = self.named_by(sentinel).filter(|named| *named != than);
            named.is_some()
        });
        named.expect("a server")
    }

    /// Starts a server again that was killed, as a replica of this primary. Returns when it may follow it.
    pub fn rejoin(&mut self, server: usize, primary: usize) {
        self.servers[server].server.restart();
        self.servers[server].announce();
        let addr = self.servers[primary].addr();
        let (ip, port) = (addr.ip().to_string(), addr.port().to_string());
        self.server(server).cli::<()>(&["REPLICAOF", &ip, &port]);
        self.wait_until_followed(primary);
    }

    /// Waits until all sentinels name the same primary, and the servers that run follow it; returns which it is.
    #[track_caller]
    pub fn settled(&self) -> usize {
        let mut primary = None;
        wait_until("the sentinels agree, and the others follow", || {
            let named: Vec<_> = (0..self.sentinels.len()).map(|one| self.named_by(one)).collect();
            primary = named[0].filter(|first| {
                named.iter().all(|other| *other == Some(*first)) && self.is_followed(*first)
            });
            primary.is_some()
        });
        primary.expect("a server")
    }

    /// Whether the others follow this server, as far as it says.
    fn is_followed(&self, primary: usize) -> bool {
        let info = self.server(primary).try_cli::<String>(&["INFO", "replication"]);
        let Ok(info) = info else { return false };
        let synced =
            info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online"));
        info.contains("role:master") && synced.count() == self.servers.len() - 1
    }

    /// Waits until the servers that run follow the one of this number, and so may follow it again.
    #[track_caller]
    pub fn wait_until_followed(&self, primary: usize) {
        wait_until("the others follow the primary", || self.is_followed(primary));
    }
}
