//! Which URLs are understood, how, and that no error repeats a password.

use std::time::Duration;

use distlock_core::authentication::Pem;
use distlock_redis::url::{Deployment, RedisUrl, SentinelUrl};
use redis::{ConnectionAddr, ConnectionInfo};

use super::{parse, quorum as quorum_of};
use crate::error::LockError;

fn parsed(url: &str) -> RedisUrl {
    assert!(parse(url).is_ok(), "{url}");
    let (scheme, rest) = url.trim().split_once("://").expect("a URL");
    match RedisUrl::parse(&scheme.to_ascii_lowercase(), rest) {
        Ok(parsed) => parsed,
        Err(error) => panic!("{url}: {error}"),
    }
}

fn refused(url: &str) -> String {
    match parse(url) {
        Ok(_) => panic!("accepted: {url}"),
        Err(error) => format!("{error} {error:?}"),
    }
}

/// `user:password@host:port/db`
fn written(info: &ConnectionInfo) -> String {
    let settings = info.redis_settings();
    let (user, password) = (settings.username(), settings.password());
    let auth = match (user, password) {
        (None, None) => String::new(),
        (user, password) => {
            format!("{}:{}@", user.unwrap_or_default(), password.unwrap_or("(none)"))
        }
    };
    let place = match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("{host}|{port}"),
        ConnectionAddr::Unix(path) => path.display().to_string(),
        _ => panic!("another kind of address"),
    };
    format!("{auth}{place}/{}", settings.db())
}

fn summary(url: &RedisUrl) -> String {
    let hosts = |infos: &[ConnectionInfo]| infos.iter().map(written).collect::<Vec<_>>().join(" ");
    match &url.deployment {
        Deployment::Server(info) => format!("server {}", written(info)),
        Deployment::Sentinel(SentinelUrl { sentinels, primary, servers, .. }) => {
            let user = servers.username().unwrap_or_default();
            let password = servers.password().unwrap_or_default();
            format!("sentinel {} [{primary}] {user}:{password}/{}", hosts(sentinels), servers.db())
        }
        Deployment::Cluster(nodes) => format!("cluster {}", hosts(nodes)),
        Deployment::Redlock { nodes, guard } => {
            let nodes = nodes.iter().map(|node| match &node.deployment {
                Deployment::Server(info) => info.clone(),
                _ => panic!("a node is a server"),
            });
            format!("redlock {} {guard:?}", hosts(&nodes.collect::<Vec<_>>()))
        }
    }
}

#[test]
fn every_scheme_has_its_parts() {
    for (url, means) in [
        ("redis://localhost", "server localhost|6379/0"),
        (" REDIS://LocalHost:6380/3\n", "server localhost|6380/3"),
        ("valkey://h/", "server h|6379/0"),
        ("redis://:secret@127.0.0.1:6380/3", "server :secret@127.0.0.1|6380/3"),
        ("redis://me:a%40b%2F%25@h", "server me:a@b/%@h|6379/0"),
        ("redis://me:p@ss,w:ord@h", "server me:p@ss,w:ord@h|6379/0"),
        ("redis://[::1]:7000", "server ::1|7000/0"),
        ("redis://[0:0::1]", "server ::1|6379/0"),
        ("redis://h?protocol=resp3", "server h|6379/0"),
        ("redis+unix:///tmp/redis.sock?db=2", "server /tmp/redis.sock/2"),
        ("unix:///a%20b?user=me&pass=x%26+y", "server me:x&+y@/a b/0"),
        ("redis-sentinel://a,b:1/main", "sentinel a|26379/0 b|1/0 [main] :/0"),
        (
            "redis-sentinel://me:pw@a,[::1]:2/my%20main/4?sentinel_user=s&sentinel_pass=t",
            "sentinel s:t@a|26379/0 s:t@::1|2/0 [my main] me:pw/4",
        ),
        ("redis-cluster://:pw@a:7000,b", "cluster :pw@a|7000/0 :pw@b|6379/0"),
        ("redis-cluster://a/0", "cluster a|6379/0"),
        ("redlock://a,b,c/1?guard=10s", "redlock a|6379/1 b|6379/1 c|6379/1 Some(10s)"),
    ] {
        assert_eq!(summary(&parsed(url)), means, "{url}");
    }
    assert!(parse("memory://").is_ok_and(|kind| kind.name() == "memory"));
}

#[test]
fn tls_is_asked_for_by_the_scheme_or_an_option() {
    for (url, servers, sentinels) in [
        ("redis://h", false, false),
        ("redis://h?tls=false", false, false),
        ("redis://h?tls=true", true, false),
        ("rediss://h", true, false),
        ("valkeys://h?tls=true", true, false),
        ("rediss-cluster://a,b", true, false),
        ("redlock://a,b,c?tls=true", true, false),
        ("redis-sentinel://a/m", false, false),
        ("rediss-sentinel://a/m", true, true),
        ("redis-sentinel://a/m?tls=true", true, false),
        ("redis-sentinel://a/m?sentinel_tls=true&ca=/ca.pem", false, true),
        ("rediss-sentinel://a/m?sentinel_tls=false", true, false),
    ] {
        let parsed = parsed(url);
        assert_eq!(parsed.tls.is_some(), servers, "{url}");
        if let Deployment::Sentinel(sentinel) = &parsed.deployment {
            assert_eq!(sentinel.sentinel_tls.is_some(), sentinels, "{url}");
        }
    }
    let all = "rediss://h?ca=/c%20a.pem&cert=c.pem&key=k.pem&server_name=name&tls_roots=none";
    let tls = parsed(all).tls.expect("TLS");
    let file = |path: &str| Pem::File(path.into());
    assert!(tls.ca == Some(file("/c a.pem")));
    assert!(tls.client == Some((file("c.pem"), file("k.pem"))));
    assert_eq!(tls.server_name.as_deref(), Some("name"));
    assert!(tls.no_system_roots);
}

#[test]
fn replicas_and_times_are_read() {
    let url = parsed("redis://h?replicas=2&replica_timeout=250ms");
    assert_eq!((url.replicas, url.replica_timeout), (Some(2), Some(Duration::from_millis(250))));
    let url = parsed("redis-cluster://h");
    assert_eq!((url.replicas, url.replica_timeout), (None, None));
}

/// Each has the password `hunter2` somewhere, if any; beside it what the error has to say.
const REFUSED: [(&str, &str); 52] = [
    ("", "no scheme"),
    ("localhost", "redis://"),
    ("hunter2", "redis://"),
    ("http://u:hunter2@h/", "unknown scheme"),
    #[cfg(feature = "etcd")]
    ("etcd://u:hunter2@h/db", "a path behind the hosts"),
    #[cfg(not(feature = "etcd"))]
    ("etcd://u:hunter2@h/db", "the feature `etcd`"),
    ("redis://", "the host: it is missing"),
    ("redis:///3", "the host: it is missing"),
    ("redis://u:hunter2@", "it is missing"),
    ("redis://u:hunter2@h:99999/", "its port is not a number"),
    ("redis://u:hunter2@h:0", "its port is not a number"),
    ("redis://u:hunter2@h/notadb", "the database is not a number"),
    ("redis://u:hunter2@h/-1", "the database is not a number"),
    ("redis://hunter2@h", "`:password@`"),
    ("redis://:hun/ter2@h", "%2F"),
    ("redis://:/hunter2@h", "%2F"),
    ("redis://:hunter2/@h", "%2F"),
    ("redis://u:hunter2#@h", "%23"),
    ("redis://u:?hunter2@h", "percent-encode"),
    ("redis://u:hunter2?x@h", "percent-encode"),
    ("redis://u?hunter2@h", "unknown option"),
    ("redis://u/hunter2@h", "`@` behind the host"),
    ("redis://:%ffhunter2@h", "UTF-8"),
    ("redis://u:hunter2@a b", "no host name"),
    ("redis://u:hunter2@::1", "brackets"),
    ("redis://u:hunter2@[hunter2]", "IPv6"),
    ("redis://u:hunter2@[::1]x", "no port"),
    ("redis://u:hunter2@[::]", "wildcard"),
    ("redis://0.0.0.0", "wildcard"),
    ("redis://u:hunter2@a,b", "redis-sentinel://"),
    (
        "redis://u:hunter2@h?hunter2=1",
        "`tls`, `ca`, `cert`, `key`, `server_name`, `tls_roots`, `replicas`",
    ),
    ("redis://h?replicas=hunter2", "`replicas`: not a number"),
    ("redis://h?replicas=-1", "`replicas`: not a number"),
    ("redis://h?replicas=1&replicas=2", "`replicas` is given twice"),
    ("redis://h?replica_timeout=hunter2", "`replica_timeout`: write a duration"),
    ("redis://h?ca", "`ca`: no value"),
    ("redis://h?ca=/hunter2", "rediss://"),
    ("redis://h?tls=yes", "`true` or `false`"),
    ("redis://h?sentinel_pass=hunter2", "unknown option"),
    ("rediss://h?tls=false", "redis:// for plain text"),
    ("rediss://h?cert=/hunter2", "`cert` needs `key`"),
    ("rediss://h?key=/hunter2", "`key` needs `cert`"),
    ("rediss://h?tls_roots=hunter2", "`none`"),
    ("rediss://h?tls_roots=none", "needs `ca`"),
    ("redis+unix://hunter2/sock", "from the root"),
    ("redis-sentinel://u:hunter2@a,b", "name of the primary is missing"),
    ("redis-sentinel://u:hunter2@a,,b/m", "host 2: it is missing"),
    ("redis-sentinel://a,b:26379,B/m?sentinel_pass=hunter2", "host 3 is host 2 once more"),
    ("redis-sentinel://a/m?sentinel_user=hunter2", "`sentinel_pass`"),
    ("redis-cluster://u:hunter2@a,b/1", "database 0"),
    ("redis-cluster://[::1],[0::1]", "host 2 is host 1 once more"),
    ("redlock://u:hunter2@a,b", "three"),
    ("redlock://u:hunter2@a", "use redis://"),
];

/// Fault: H12.
#[test]
fn refusals_name_the_mend_and_no_password() {
    for (url, mend) in REFUSED {
        let text = refused(url);
        assert!(text.contains(mend), "{url}: {text}");
        for secret in ["hunter2", "ter2"] {
            assert!(!text.contains(secret), "{url}: {text}");
        }
    }
}

/// Whatever character a password has: encoded it arrives as it is, and as it is it either arrives as well or is
/// refused, and is in no error.
#[test]
fn a_password_of_any_characters_arrives_or_is_refused_in_silence() {
    let printable = (' '..='~').chain(['ä', '\u{1f512}', '\t', '\u{7f}']);
    for c in printable {
        for password in [format!("{c}"), format!("QX{c}ZJ"), format!("{c}{c}QX"), format!("QX{c}")]
        {
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
            for (before, behind) in [
                ("redis://u:", "@h"),
                ("rediss://:", "@h:1/2?server_name=x"),
                ("redis-cluster://:", "@a,b"),
                ("redis-sentinel://:", "@a,b/m"),
                ("redlock://u:", "@a,b,c"),
            ] {
                let servers = |url: &str| match parse(url) {
                    Ok(_) => Ok(match parsed(url).deployment {
                        Deployment::Server(info) => info.redis_settings().clone(),
                        Deployment::Sentinel(sentinel) => sentinel.servers,
                        Deployment::Cluster(nodes) => nodes[0].redis_settings().clone(),
                        Deployment::Redlock { nodes, .. } => match &nodes[0].deployment {
                            Deployment::Server(info) => info.redis_settings().clone(),
                            _ => panic!("a node is a server"),
                        },
                    }),
                    Err(error) => Err(format!("{error} {error:?}")),
                };
                let settings = servers(&[before, &encoded, behind].concat());
                let settings = settings.unwrap_or_else(|why| panic!("{password:?}: {why}"));
                assert_eq!(settings.password(), Some(&*password));
                match servers(&[before, &password, behind].concat()) {
                    Ok(settings) => {
                        assert!(
                            c == '%' || settings.password() == Some(&*password),
                            "{password:?}"
                        );
                    }
                    Err(why) => assert!(!why.contains("QX") && !why.contains("ZJ"), "{why}"),
                }
            }
            let option = format!("redis-sentinel://a/m?sentinel_pass={encoded}");
            let Deployment::Sentinel(SentinelUrl { sentinels, .. }) = parsed(&option).deployment
            else {
                panic!("it is a sentinel")
            };
            assert_eq!(sentinels[0].redis_settings().password(), Some(&*password));
        }
    }
}

#[test]
fn a_quorum_may_have_a_url_for_each_server() {
    let quorum = |urls: &[&str]| -> Result<String, String> {
        let urls: Vec<_> = urls.iter().map(ToString::to_string).collect();
        let refused = |error: LockError| format!("{error} {error:?}");
        quorum_of(&urls).map_err(refused)?;
        Ok(summary(&RedisUrl::quorum(&urls).expect("it was accepted")))
    };
    assert_eq!(
        quorum(&["redis://:one@a", "redis://me:two@b:7000/2", " REDIS://c "]).as_deref(),
        Ok("redlock :one@a|6379/0 me:two@b|7000/2 c|6379/0 None")
    );
    for (urls, mend) in [
        (&["redis://:QX@a", "redis://b", "redis://:ZJ@A:6379/1"][..], "URL 3: the server of URL 1"),
        (&["redis://:QX@a", "redis-cluster://:ZJ@b", "redis://c"], "URL 2: a quorum is of single"),
        (&["redis://:QX@a", "etcd://:ZJ@b", "redis://c"], "URL 2: a quorum is of single"),
        (&["memory://", "memory://", "memory://"], "URL 1: a quorum is of single"),
        (&["redis://:QX@a", "redis://b"], "give three"),
        (&["redis://:QX@a", "b", "redis://c"], "URL 2: no scheme"),
        (&["redis://a", "redis://:Q#X@b", "redis://c"], "URL 2: a `#`"),
        (&[], "give three"),
    ] {
        let why = quorum(urls).expect_err("it cannot be used");
        assert!(why.contains("urls: ") && why.contains(mend), "{mend:?} is not in: {why}");
        assert!(!why.contains("QX") && !why.contains("ZJ"), "{why}");
    }
}
