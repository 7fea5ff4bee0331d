//! Each mode of the proxy, seen from both ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use distlock_testkit::{Mode, Proxy, RedisServer, wait_until};

/// A listener instead of Redis, so that each direction can be looked at alone.
fn pair(proxy: &Proxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(proxy.addr()).expect("connect to the proxy");
    let server = listener.accept().expect("the proxy connects").0;
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("set a socket up");
        stream.set_nonblocking(true).expect("set a socket up");
    }
    (client, server)
}

fn setup() -> (Proxy, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    (Proxy::to(listener.local_addr().expect("an address")), listener)
}

#[track_caller]
fn arrives(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) {
    let (mut rest, mut got) = (bytes, Vec::new());
    wait_until("the bytes arrive", || {
        // The kernel takes as much as it has room for.
        if let Ok(n) = from.write(rest) {
            rest = &rest[n..];
        }
        let _ = to.read_to_end(&mut got);
        rest.is_empty() && got.len() >= bytes.len()
    });
    assert_eq!(got, bytes);
}

#[track_caller]
fn arrived(mut to: &TcpStream, bytes: &[u8]) {
    let mut got = Vec::new();
    wait_until("the bytes arrive", || {
        let _ = to.read_to_end(&mut got);
        got.len() >= bytes.len()
    });
    assert_eq!(got, bytes);
}

/// Nothing within a time in which [`arrives`] would have succeeded many times.
#[track_caller]
fn silent(mut stream: &TcpStream) {
    std::thread::sleep(Duration::from_millis(50));
    let got = stream.read(&mut [0]).expect_err("nothing arrives");
    assert_eq!(got.kind(), ErrorKind::WouldBlock);
}

#[track_caller]
fn is_reset(stream: &TcpStream) {
    assert_eq!(end(stream), Err(ErrorKind::ConnectionReset));
}

/// What a connection says when it has ended.
#[track_caller]
fn end(mut stream: &TcpStream) -> Result<usize, ErrorKind> {
    let mut last = Err(ErrorKind::WouldBlock);
    wait_until("the connection ends", || {
        last = stream.read(&mut [0]).map_err(|e| e.kind());
        last != Err(ErrorKind::WouldBlock)
    });
    last
}

#[test]
fn passes_both_ways_and_hands_the_end_on() {
    let (proxy, listener) = setup();
    let (client, server) = pair(&proxy, &listener);
    arrives(&client, &server, &vec![7; 3_000_000]);
    arrives(&server, &client, b"pong");
    drop(client);
    wait_until("the end arrives", || (&server).read(&mut [0]).is_ok_and(|n| n == 0));
}

#[test]
fn delays_each_direction_and_keeps_the_order() {
    let (proxy, listener) = setup();
    let (client, server) = pair(&proxy, &listener);
    let delay = Duration::from_millis(30);
    proxy.set(Mode::Delay(delay));
    for (mut from, to) in [(&client, &server), (&server, &client)] {
        let start = Instant::now();
        for byte in [b"a", b"b"] {
            from.write_all(byte).expect("write");
        }
        arrived(to, b"ab");
        assert!(start.elapsed() >= delay);
    }
}

#[test]
fn frozen_bytes_arrive_after_the_thaw() {
    let (proxy, listener) = setup();
    let (client, server) = pair(&proxy, &listener);
    proxy.set(Mode::Freeze);
    (&client).write_all(b"up").expect("write");
    (&server).write_all(b"down").expect("write");
    silent(&server);
    silent(&client);
    let (late, late_server) = pair(&proxy, &listener);
    (&late).write_all(b"late").expect("write");
    silent(&late_server);
    proxy.set(Mode::Pass);
    arrived(&server, b"up");
    arrived(&client, b"down");
    arrived(&late_server, b"late");
}

#[test]
fn only_existing_connections_freeze() {
    let (proxy, listener) = setup();
    let (old, old_server) = pair(&proxy, &listener);
    proxy.set(Mode::FreezeExisting);
    let (new, new_server) = pair(&proxy, &listener);
    arrives(&new, &new_server, b"new");
    (&old).write_all(b"old").expect("write");
    silent(&old_server);
    proxy.set(Mode::Pass);
    arrived(&old_server, b"old");
}

#[test]
fn lost_bytes_are_lost_and_end_their_connection() {
    for (mode, up) in [(Mode::DropUp, true), (Mode::DropDown, false)] {
        let (proxy, listener) = setup();
        let (client, server) = pair(&proxy, &listener);
        let (idle, idle_server) = pair(&proxy, &listener);
        proxy.set(mode);
        let (mut lossy, sound) = if up { (&client, &server) } else { (&server, &client) };
        lossy.write_all(b"lost").expect("write");
        silent(sound);
        arrives(sound, lossy, b"through");
        proxy.set(Mode::Pass);
        is_reset(&client);
        is_reset(&server);
        arrives(&idle, &idle_server, b"nothing was lost here");
    }
}

#[test]
fn resets_what_is_there_and_what_comes() {
    let (proxy, listener) = setup();
    let (client, server) = pair(&proxy, &listener);
    proxy.set(Mode::Reset);
    is_reset(&client);
    is_reset(&server);
    // The kernel accepts, and may hear of the reset before it says so.
    match TcpStream::connect(proxy.addr()) {
        Ok(refused) => is_reset(&refused),
        Err(refused) => assert_eq!(refused.kind(), ErrorKind::ConnectionReset),
    }
    proxy.set(Mode::Pass);
    let (client, server) = pair(&proxy, &listener);
    arrives(&client, &server, b"again");
}

#[test]
fn cuts_an_answer_in_the_middle() {
    let (proxy, listener) = setup();
    let (client, server) = pair(&proxy, &listener);
    proxy.set(Mode::CutDown(3));
    arrives(&client, &server, b"a question");
    (&server).write_all(b"answer").expect("write");
    arrived(&client, b"ans");
    // A reset is told once, and whoever read the answer may have heard it.
    assert!(matches!(end(&client), Ok(0) | Err(ErrorKind::ConnectionReset)));
    let (client, server) = pair(&proxy, &listener);
    (&server).write_all(b"another").expect("write");
    arrived(&client, b"ano");
}

#[test]
fn stands_before_redis() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = redis::Client::open(proxy.url()).expect("a URL");
    let mut connection = client.get_connection().expect("connect through the proxy");
    redis::cmd("SET").arg("k").arg("v").query::<()>(&mut connection).expect("SET");
    assert_eq!(server.keys(), ["k"]);
}
