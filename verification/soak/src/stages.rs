//! From the release of a lock to the next process's body, in stages, each in round trips of a bare
//! PING that were measured in the same run.

use std::time::{Duration, Instant};

use distlock_testkit::{LONG, Mode, Proxy, RedisServer, connect, data_at};
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;

use crate::effort::Effort;
use crate::report::Report;

/// Round trips from the release call to the body.
const AIM: f64 = 4.0;
/// Before each of them.
const REST: Duration = Duration::from_millis(2);

/// Medians of one network.
struct Medians {
    ping: Duration,
    release: Duration,
    hint: Duration,
    body: Duration,
}

/// Runs it; an effort of times counts hand-offs, over loopback and as many with a delay each way.
pub async fn run(effort: Effort) -> Report {
    let mut report = Report::default();
    for (name, delay) in
        [("loopback", None), ("0.25 ms each way", Some(Duration::from_micros(250)))]
    {
        let Medians { ping, release, hint, body } = measure(effort, delay).await;
        let trips = |time: Duration| time.as_secs_f64() / ping.as_secs_f64();
        report.figure(format!("{name}: PING"), format!("{ping:.1?}"));
        let line = |time| format!("{:.2} round trips, {time:.1?}", trips(time));
        report.figure(format!("{name}: release call to its answer"), line(release));
        report.figure(format!("{name}: release call to message"), line(hint));
        report.figure(format!("{name}: message to body"), line(body.saturating_sub(hint)));
        report.figure(format!("{name}: release call to body"), line(body));
        report.past_if(trips(body) > AIM, format!("{name}: {:.2} round trips", trips(body)));
    }
    report
}

async fn measure(effort: Effort, delay: Option<Duration>) -> Medians {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let url = if delay.is_some() { proxy.url() } else { server.url() };
    let (a, b) = (connect(&url).await, connect(&url).await);
    let client = redis::Client::open(&*url).expect("a URL");
    let mut ping = data_at(&url).await;
    if let Some(delay) = delay {
        proxy.set(Mode::Delay(delay));
    }
    let (start, mut rounds) = (Instant::now(), 0);
    let (mut pings, mut released, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    let [mut giver, mut taker] = [&a, &b];
    let mut guard = giver.lock("k").ttl(LONG).acquire().await.expect("granted");
    while effort.goes_on(rounds, start) {
        rounds += 1;
        let waiting = tokio::spawn({
            let request = taker.lock("k").ttl(LONG).wait(LONG);
            async move {
                let guard = request.acquire().await.expect("its turn");
                (Instant::now(), guard)
            }
        });
        stand(&server).await;
        // After the same rest as the releases: what slept longer takes longer to wake.
        pings.push(bare(&mut ping).await);
        tokio::time::sleep(REST).await;
        let call = Instant::now();
        guard.release().await.expect("it was held");
        released.push(call.elapsed());
        let (began, next) = waiting.await.expect("no panic");
        bodies.push(began - call);
        guard = next;
        std::mem::swap(&mut giver, &mut taker);
    }
    // Apart from the others: a subscriber that listens in costs the server time.
    let mut messages = listen(&client);
    let mut hints = Vec::new();
    for _ in 0..rounds.min(500) {
        let waiting = tokio::spawn(taker.lock("k").ttl(LONG).wait(LONG).acquire());
        stand(&server).await;
        // Messages about the waiter.
        while messages.try_recv().is_ok() {}
        let call = Instant::now();
        guard.release().await.expect("it was held");
        let mut came = messages.recv().await.expect("a message");
        while came < call {
            came = messages.recv().await.expect("a message");
        }
        hints.push(came - call);
        guard = waiting.await.expect("no panic").expect("granted");
        std::mem::swap(&mut giver, &mut taker);
    }
    drop(guard);
    let [ping, release, hint, body] = [pings, released, hints, bodies].map(median);
    Medians { ping, release, hint, body }
}

async fn bare(connection: &mut MultiplexedConnection) -> Duration {
    let start = Instant::now();
    redis::cmd("PING").exec_async(connection).await.expect("PONG");
    start.elapsed()
}

/// When messages to managers arrived on a connection of its own.
fn listen(client: &redis::Client) -> mpsc::UnboundedReceiver<Instant> {
    let (heard, messages) = mpsc::unbounded_channel();
    let mut connection = client.get_connection().expect("connect");
    let (ready, listens) = std::sync::mpsc::channel();
    // It ends with the server.
    std::thread::spawn(move || {
        let mut ear = connection.as_pubsub();
        ear.psubscribe("distlock:wake:*").expect("listens");
        ready.send(()).expect("it is waited for");
        while ear.get_message().is_ok() && heard.send(Instant::now()).is_ok() {}
    });
    listens.recv().expect("it listens");
    messages
}

/// Until the other one stands in the queue, and a moment more: its messages have arrived.
async fn stand(server: &RedisServer) {
    while server.cli::<usize>(&["ZCARD", "distlock:queue:{k}"]) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(REST).await;
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}
