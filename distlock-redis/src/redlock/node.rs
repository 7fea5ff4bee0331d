//! One node of a quorum. Its replies count while the node is known to remember its locks.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::redlock::{RestartGuard, relies_for};
use distlock_core::select::until;
use distlock_core::store::{BackendKind, Fault, Op};
use distlock_core::timers::{Alarm, Alarms};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::members::{Members, SeatStep};
use crate::RedisStore;
use crate::redlock::identity::Identity;
use crate::store::on_heap;

const MOVED: &str = "the connection to a node was made again meanwhile";

const NOT_SEATED: &str =
    "the other servers of the quorum have not said yet whether this one belongs to it";

/// How long to wait for servers that have not answered yet, before the others make the list of the quorum.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause before the servers whose lists decide are asked again; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How often to look at a server that is being watched, because another process may have watched it for longer.
const LOOK: Duration = Duration::from_secs(1);

/// The state that all nodes of a quorum share.
pub(super) struct QuorumContext {
    pub(super) members: Members,
    pub(super) guard: Duration,
    pub(super) handle: Handle,
    pub(super) alarms: Arc<Alarms>,
    pub(super) command_timeout: Duration,
    /// The nodes themselves.
    pub(super) all: OnceLock<Box<[Weak<Node>]>>,
}

/// One node of a quorum.
pub(super) struct Node {
    pub(super) store: Arc<RedisStore>,
    /// `host:port`, or a path.
    pub(super) addr: String,
    common: Arc<QuorumContext>,
    place: usize,
    state: Mutex<NodeState>,
    /// Whether the node's list is being read again.
    is_read: AtomicBool,
}

/// The knowledge about the server of a node.
#[derive(Default)]
struct NodeState {
    restarts: RestartGuard,
    known: Option<Identified>,
    /// The run that a task is watching.
    watched: Option<String>,
}

/// The connection on which the server has identified itself.
#[derive(Clone, Copy)]
struct Identified {
    connection: u64,
    /// The number of the quorum's list by which the node is a member.
    list: u64,
    /// When its list was requested.
    asked: Moment,
}

/// A reply, and whether it counts as a vote.
pub(super) struct NodeReply<T> {
    pub(super) answer: T,
    pub(super) counts: bool,
}

impl Node {
    /// Makes the node at this place in the list.
    pub(super) fn new(
        place: usize,
        store: Arc<RedisStore>,
        addr: String,
        common: &Arc<QuorumContext>,
    ) -> Self {
        let (state, is_read) = Default::default();
        Self { store, addr, common: common.clone(), place, state, is_read }
    }

    /// Whether the node is down, so that calls do not wait for it.
    pub(super) fn is_down(&self) -> bool {
        self.store.link.as_ref().is_some_and(|link| link.outage().is_some())
    }

    /// Returns the number of the connection for commands; `None` while there is none.
    fn connection(&self) -> Option<u64> {
        self.store.link.as_ref()?.number()
    }

    /// Returns the server's time in µs, as far as it is known from its replies; else 0.
    pub(super) fn time(&self) -> u64 {
        self.store.link.as_ref().map_or(0, |link| link.server_time())
    }

    /// Makes the node identify itself on every connection, so that a restart is noticed while no call needs it.
    pub(super) fn attend(self: &Arc<Self>) {
        let (node, store) = (Arc::downgrade(self), self.store.clone());
        self.common.handle.spawn(async move {
            loop {
                store.is_up(true).await;
                let Some(up) = node.upgrade() else { return };
                let answer_by = Clock::Boottime.now().after(up.common.command_timeout);
                let _ = up.known(answer_by).await;
                drop(up);
                store.is_up(false).await;
                let Some(down) = node.upgrade() else { return };
                down.common.members.lost(down.place);
            }
        });
    }

    /// Runs `op` at the node, over a connection on which it has identified itself.
    ///
    /// Rare cases are on the heap, and `op` begins where it stays, because this future is created for every node and
    /// every lock.
    pub(super) fn ask<T, F>(
        self: &Arc<Self>,
        answer_by: Moment,
        op: impl FnOnce() -> F + Send + 'static,
    ) -> Op<NodeReply<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let node = self.clone();
        on_heap(|| async move {
            let connection = match node.is_known() {
                Some(connection) => connection,
                None => Box::pin(node.known(answer_by)).await?,
            };
            let sent = Clock::Boottime.now();
            let answer = op().await?;
            // Over another connection it may be another server, or the same one after a restart.
            if node.connection() != Some(connection) {
                return Err(Fault::passing(BackendKind::Unreachable, MOVED));
            }
            let counts = node.state().restarts.counts(sent);
            Ok(NodeReply { answer, counts })
        })
    }

    /// Returns the connection, if the node has identified itself on it and its list was read a short time ago.
    fn is_known(self: &Arc<Self>) -> Option<u64> {
        let Identified { connection, list, asked } = self.state().known?;
        let is_current = self.connection() == Some(connection);
        if !is_current || list != self.common.members.number() {
            return None;
        }
        let (age, most) = (Clock::Boottime.now().since(asked), relies_for(self.common.guard));
        if !most.is_zero() && age >= most / 2 {
            self.read_again();
        }
        (most.is_zero() || age < most).then_some(connection)
    }

    /// Makes the node identify itself again, while no caller waits for it.
    fn read_again(self: &Arc<Self>) {
        if self.is_read.swap(true, Ordering::AcqRel) {
            return;
        }
        let node = self.clone();
        self.common.handle.spawn(async move {
            let answer_by = Clock::Boottime.now().after(node.common.command_timeout);
            let _ = node.identify(answer_by).await;
            node.is_read.store(false, Ordering::Release);
        });
    }

    /// Returns the connection on which the node has identified itself. Asks it to do so if necessary.
    pub(super) async fn known(self: &Arc<Self>, answer_by: Moment) -> Result<u64, Fault> {
        match self.is_known() {
            Some(known) => Ok(known),
            None => self.identify(answer_by).await,
        }
    }

    async fn identify(self: &Arc<Self>, answer_by: Moment) -> Result<u64, Fault> {
        let asked = Clock::Boottime.now();
        let (connection, server) =
            self.store.identity(&Uuid::new_v4().simple().to_string(), answer_by).await?;
        self.common.members.found(self.place, &server, Clock::Boottime.now())?;
        let list = self.seat(asked, answer_by).await?;
        if self.connection() != Some(connection) {
            return Err(Fault::passing(BackendKind::Unreachable, MOVED));
        }
        let run = run_of(&server);
        let is_watched = self.is_vouched_for(&run, server.watched.as_deref());
        let guard = self.common.guard;
        {
            let mut state = self.state();
            state.restarts.greeted(&run, is_watched, guard, Clock::Boottime.now());
            state.known = Some(Identified { connection, list, asked });
        }
        if !is_watched && !guard.is_zero() {
            self.watch(run);
        }
        Ok(connection)
    }

    /// ReplicaWaits until the node is a member of the quorum. Returns the number of the list.
    async fn seat(self: &Arc<Self>, asked: Moment, answer_by: Moment) -> Result<u64, Fault> {
        let members = &self.common.members;
        let patience = asked.after(PATIENCE.min(answer_by.since(asked) / 2));
        let mut pause = FIRST_PAUSE;
        loop {
            let mut changed = pin!(members.changed.notified());
            // Subscribe first, so that a change before the wait counts as well.
            changed.as_mut().enable();
            let now = Clock::Boottime.now();
            match members.seated(self.place, now < patience)? {
                SeatStep::Member(number) => return Ok(number),
                SeatStep::Write { before, list } => {
                    let there = self.store.enlist(before.as_deref(), &list, answer_by).await?;
                    members.stored(self.place, there, Clock::Boottime.now())?;
                    continue;
                }
                SeatStep::Wait if now >= answer_by => {
                    return Err(Fault::passing(BackendKind::Other, NOT_SEATED));
                }
                SeatStep::Wait => {}
            }
            self.call_others();
            let wake =
                Alarm::at(&self.common.alarms, Clock::Boottime, now.after(pause).min(answer_by));
            if until(changed, wake).await.is_none() {
                pause = LOOK.min(pause * 2);
            }
        }
    }

    /// Makes the other nodes identify themselves again, because their lists decide about this one.
    fn call_others(&self) {
        let all = self.common.all.get().into_iter().flatten();
        let others = all.filter_map(Weak::upgrade).filter(|other| other.place != self.place);
        let others = others.filter(|other| other.connection().is_some());
        others.for_each(|other| other.read_again());
    }

    /// Watches this run until it counts, and says so at the server. Looks there now and then as well, because
    /// another process may have watched it for longer.
    fn watch(self: &Arc<Self>, run: String) {
        let is_watched = self.state().watched.replace(run.clone()).is_some_and(|one| one == run);
        if is_watched {
            return;
        }
        let (node, common) = (Arc::downgrade(self), self.common.clone());
        self.common.handle.spawn(async move {
            loop {
                let Some(left) = node.upgrade().and_then(|node| node.left_for(&run)) else {
                    return;
                };
                let next = Clock::Boottime.now().after(left.min(LOOK));
                Alarm::at(&common.alarms, Clock::Boottime, next).await;
                let Some(node) = node.upgrade() else { return };
                if node.look(&run).await {
                    return;
                }
                if left.is_zero() {
                    // The run counts here, but the note could not be written.
                    let next = Clock::Boottime.now().after(LOOK);
                    drop(node);
                    Alarm::at(&common.alarms, Clock::Boottime, next).await;
                }
            }
        });
    }

    /// Returns how long it takes until this run counts, if it is the present one.
    fn left_for(&self, run: &str) -> Option<Duration> {
        self.state().restarts.wait_for(run, Clock::Boottime.now())
    }

    /// Writes that this run was watched for long enough, if it was, and reads whether another process has
    /// written so. Returns whether either is the case.
    async fn look(&self, run: &str) -> bool {
        let now = Clock::Boottime.now();
        let guard = self.common.guard;
        let ours = self.state().restarts.has_watched(run, now);
        let ours = ours.then(|| format!("{run} {}", guard.as_millis()));
        let answer_by = now.after(self.common.command_timeout);
        let there = self.store.watched(ours.as_deref(), answer_by).await.unwrap_or_default();
        let is_said = self.is_vouched_for(run, there.as_deref());
        let mut state = self.state();
        let is_present = state.restarts.wait_for(run, now).is_some();
        if is_said && is_present {
            state.restarts.greeted(run, true, guard, Clock::Boottime.now());
        }
        if is_said && state.watched.as_deref() == Some(run) {
            state.watched = None;
        }
        is_said
    }

    /// Whether the server's note says that a process has watched this run for as long as this process would.
    fn is_vouched_for(&self, run: &str, said: Option<&str>) -> bool {
        let millis = said.and_then(|said| said.strip_prefix(run)?.strip_prefix(' ')?.parse().ok());
        millis.is_some_and(|millis: u128| millis >= self.common.guard.as_millis())
    }

    /// Returns how long it takes until its votes count.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.state().restarts.wait(Clock::Boottime.now())
    }

    fn state(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identifies one run of one server with the data that it has. A server that lost its data has another id.
fn run_of(server: &Identity) -> String {
    [&*server.run_id, &*server.id].join(" ")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::process::{Child, Command, Stdio};

    use distlock_core::store::{LinkWatch, StoreEvents};
    use distlock_core::timers::Alarms;
    use redis::IntoConnectionInfo as _;

    use super::*;
    use crate::{RedisConfig, RedisServers};

    /// Ignores all reports.
    #[derive(Debug)]
    struct Unobserved;

    impl StoreEvents for Unobserved {
        fn watch_link(&self) -> Box<dyn LinkWatch> {
            Box::new(Self)
        }

        fn denied(&self, _error: String) {}
        fn may_evict(&self, _policy: String) {}
        fn quorum_waits(&self, _wait: Duration) {}
    }

    impl LinkWatch for Unobserved {
        fn up(&mut self, _node: &str) {}
        fn down(&mut self, _node: &str, _why: &dyn std::fmt::Display) {}
    }

    /// Alarms that a task of this test looks after.
    fn alarms() -> Arc<Alarms> {
        let alarms = Arc::new(Alarms::new(Arc::default()));
        let due = alarms.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                due.take_due(Clock::Boottime.now()).0.into_iter().for_each(|waker| waker.wake());
            }
        });
        alarms
    }

    /// A redis-server that ends with the test.
    struct TestServer(Child, SocketAddr);

    impl Drop for TestServer {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl TestServer {
        fn start() -> Self {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let addr = free.local_addr().expect("an address");
            drop(free);
            let port = addr.port().to_string();
            let mut server = Command::new("redis-server");
            server.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
            let server = server.stdout(Stdio::null()).spawn().expect("redis-server is installed");
            let server = Self(server, addr);
            while TcpStream::connect(addr).is_err() {
                std::thread::sleep(Duration::from_millis(5));
            }
            server
        }

        /// Returns the only node of a quorum, which is enough to ask it.
        fn node(&self) -> Arc<Node> {
            let (handle, alarms) = (Handle::current(), alarms());
            let info = self.1.to_string();
            let info = format!("redis://{info}").into_connection_info().expect("a URL");
            let config = RedisConfig {
                servers: RedisServers::Single(info),
                tls: None,
                replicas: None,
                command_timeout: Duration::from_secs(10),
                connect_timeout: Duration::from_secs(10),
                connections: 1,
                io_on_caller_runtime: false,
                fence: "fence".to_owned(),
                prefix: String::new(),
                events: Arc::new(Unobserved),
            };
            let common = QuorumContext {
                members: Members::at(vec![self.1.to_string()], Duration::ZERO),
                guard: Duration::ZERO,
                handle: handle.clone(),
                alarms: alarms.clone(),
                command_timeout: Duration::from_secs(10),
                all: OnceLock::new(),
            };
            let store = Arc::new(RedisStore::start(config, &handle, &alarms));
            Arc::new(Node::new(0, store, self.1.to_string(), &Arc::new(common)))
        }
    }

    /// Between two questions, the server may have been replaced by one that knows nothing of the first.
    /// Fault: FC8.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_answer_over_another_connection_than_it_identified_itself_on_does_not_count() {
        let server = TestServer::start();
        let node = server.node();
        let answer_by = Clock::Boottime.now().after(Duration::from_secs(60));
        let (asked, addr) = (node.clone(), server.1);
        let stays = node.ask(answer_by, || async { Ok(()) }).await;
        assert!(stays.is_ok_and(|voted| voted.counts));
        let moved = node.ask(answer_by, move || async move {
            let first = asked.connection();
            let mut killer = TcpStream::connect(addr).expect("connect");
            killer.write_all(b"CLIENT KILL TYPE normal\r\n").expect("kill");
            while [None, first].contains(&asked.connection()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        });
        let fault = moved.await.map(|voted| voted.counts).expect_err("it may be another server");
        assert_eq!(fault.reason(), MOVED);
    }
}
