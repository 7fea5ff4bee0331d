//! The server does what tests ask of it, and is gone afterwards.

use std::path::Path;

use distlock_testkit::{RedisServer, fork_self, in_fork, wait_until};

#[test]
fn several_at_once_have_data_of_their_own() {
    let servers: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
    for (i, server) in servers.iter().enumerate() {
        server.cli::<()>(&["SET", "who", &i.to_string()]);
    }
    for (i, server) in servers.iter().enumerate() {
        assert_eq!(server.cli::<usize>(&["GET", "who"]), i);
    }
}

#[test]
fn urls_lead_to_it_with_the_password() {
    let server = RedisServer::builder().password("secret").start();
    for url in [server.url(), server.unix_url(), server.url_of_db(3)] {
        let client = redis::Client::open(url).expect("a URL redis understands");
        let mut connection = client.get_connection().expect("connect");
        redis::cmd("PING").query::<()>(&mut connection).expect("PING");
    }
    let stranger = redis::Client::open(format!("redis://{}", server.addr())).expect("a URL");
    let mut connection = stranger.get_connection().expect("connect");
    redis::cmd("GET").arg("k").query::<()>(&mut connection).expect_err("no password, no answer");
}

#[test]
fn lock_keys_are_all_but_the_fence_counters() {
    let server = RedisServer::start();
    for key in ["distlock:fence", "fence", "app:fence", "distlock:lock::{a}:fence", "other"] {
        server.cli::<()>(&["SET", key, "1"]);
    }
    assert_eq!(server.lock_keys(), ["distlock:lock::{a}:fence", "other"]);
    assert_eq!(server.keys().len(), 5);
}

#[test]
fn restarts_at_the_same_place_with_or_without_its_data() {
    let mut server = RedisServer::builder().durable().start();
    let url = server.url();
    server.cli::<()>(&["SET", "k", "v"]);
    server.restart();
    assert_eq!((server.url(), server.keys()), (url, vec!["k".to_owned()]));
    server.restart_empty();
    assert!(server.keys().is_empty());

    let mut forgetful = RedisServer::start();
    forgetful.cli::<()>(&["SET", "k", "v"]);
    forgetful.kill9();
    std::net::TcpStream::connect(forgetful.addr()).expect_err("nobody listens");
    forgetful.restart();
    assert!(forgetful.keys().is_empty());
}

#[test]
fn a_stopped_server_answers_when_it_goes_on() {
    let server = RedisServer::start();
    let (_, pid) = traces(&server);
    server.stop();
    assert_eq!(state(&pid), Some('T'));
    server.cont();
    server.cli::<()>(&["PING"]);
}

#[test]
fn nothing_is_left_when_it_is_dropped_stopped_or_in_a_panic() {
    let stopped = RedisServer::start();
    let left = traces(&stopped);
    stopped.stop();
    drop(stopped);
    assert_gone(left);

    let (tell, told) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let server = RedisServer::start();
        tell.send(traces(&server)).expect("the test listens");
        panic!("with a server running");
    });
    let left = told.recv().expect("the traces");
    panicked.join().expect_err("it panics");
    assert_gone(left);
}

#[test]
fn nothing_is_left_when_the_test_process_is_killed() {
    const NAME: &str = "nothing_is_left_when_the_test_process_is_killed";
    if in_fork() {
        let server = RedisServer::start();
        let (dir, pid) = traces(&server);
        let (told, file) = (format!("{dir} {pid}"), std::env::var("TELL").expect("where to tell"));
        std::fs::write(&file, told + "\n").expect("tell");
        loop {
            std::thread::park();
        }
    }
    let file = std::env::temp_dir().join(format!("distlock-tell-{}", std::process::id()));
    let fork = fork_self(NAME, &[("TELL", file.to_str().expect("a plain path"))]);
    let mut told = String::new();
    wait_until("the child has its server", || {
        told = std::fs::read_to_string(&file).unwrap_or_default();
        told.ends_with('\n')
    });
    std::fs::remove_file(&file).expect("remove the file");
    fork.kill9();
    let (dir, pid) = told.trim().split_once(' ').expect("directory and process id");
    assert_gone((dir.to_owned(), pid.to_owned()));
}

/// Directory and process id, as the server itself knows them.
fn traces(server: &RedisServer) -> (String, String) {
    let (_, dir): (String, String) = server.cli(&["CONFIG", "GET", "dir"]);
    let info: String = server.cli(&["INFO", "server"]);
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:"));
    (dir, pid.expect("a process id").to_owned())
}

/// The kernel's letter for what a process does; none if there is no such process.
fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn assert_gone((dir, pid): (String, String)) {
    wait_until("the directory is gone", || !Path::new(&dir).exists());
    // In a container without an init process nobody collects an orphan that has ended.
    wait_until("the server is gone", || matches!(state(&pid), None | Some('Z')));
}
