//! The connection that listens: messages for one process.
//!
//! Each message costs the server time for every session that listens, whatever its channel. So the connection
//! stays open, but it listens only while this process wants to [hear](Listener::hear) something.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{Made, connect};
use crate::database::Shared;
use crate::error::Fault;
use crate::link::Link;
use crate::select::race;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A connection behind a pooler takes `LISTEN` and hears nothing: it is asked for again so much later.
const DEAF_PAUSE: Duration = Duration::from_secs(60);
/// How long an echo may take.
const ECHO: Duration = Duration::from_secs(2);
/// How often it is seen whether the connection is still there.
const CHECK: Duration = Duration::from_secs(10);

/// What is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// What a process or the server has sent.
    Text(&'a str),
    /// Listening began or ended: messages may have been missed.
    Interrupted,
    /// The server lets commands through and no messages.
    Denied(&'a str),
}

type Handler = Box<dyn Fn(Message<'_>) + Send + Sync>;

/// Listens for one process.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    /// Over which the echo is sent: another connection, or a pooler would pass.
    lane: Arc<Link>,
    process: OnceLock<(String, Handler)>,
    state: watch::Sender<Ears>,
    echoed: Notify,
}

/// The connection's abilities and the caller's needs.
#[derive(Debug, Clone, Copy, Default)]
struct Ears {
    /// The connection is up, and messages arrive.
    able: bool,
    /// This process waits for messages.
    wanted: bool,
    /// The connection listens.
    open: bool,
}

impl Listener {
    pub(crate) fn new(shared: Arc<Shared>, lane: Arc<Link>) -> Self {
        let (process, state) = (OnceLock::new(), watch::Sender::default());
        Self { shared, lane, process, state, echoed: Notify::new() }
    }

    pub(crate) fn start(self: &Arc<Self>, process: &str, on: Handler, handle: &Handle) {
        let is_first = self.process.set((process.to_owned(), on)).is_ok();
        if is_first && self.shared.address.listens {
            handle.spawn(self.clone().supervise());
        }
    }

    pub(crate) fn is_able(&self) -> bool {
        self.state.borrow().able
    }

    /// Starts to listen. Returns whether the connection listens; it then hears every later message.
    pub(crate) async fn hear(&self) -> bool {
        self.state.send_if_modified(|ears| !std::mem::replace(&mut ears.wanted, true));
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|ears| !ears.able || ears.open).await;
        settled.is_ok_and(|ears| ears.open)
    }

    /// Stops listening, because nobody waits for a message.
    pub(crate) fn need_not_hear(&self) {
        self.state.send_if_modified(|ears| std::mem::replace(&mut ears.wanted, false));
    }

    fn process(&self) -> &str {
        self.process.get().map_or("", |(process, _)| process)
    }

    fn on(&self, message: Message<'_>) {
        match (message, self.process.get()) {
            (Message::Text("echo"), _) => self.echoed.notify_one(),
            (message, Some((_, on))) => on(message),
            (_, None) => {}
        }
    }

    async fn supervise(self: Arc<Self>) {
        let (mut pause, mut was_denied) = (FIRST_PAUSE, false);
        loop {
            self.lane.until_up().await;
            let heard = self.session().await;
            self.shared.direct.send_replace(false);
            let ears = self.state.send_replace(Ears::default());
            if ears.able {
                self.on(Message::Interrupted);
                (pause, was_denied) = (FIRST_PAUSE, false);
            }
            if let Err(deaf @ (Deaf::Pooled | Deaf::Refused)) = heard {
                if !std::mem::replace(&mut was_denied, true) {
                    self.on(Message::Denied(deaf.words()));
                }
                pause = DEAF_PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connects, and listens whenever that is wanted, until the connection ends.
    async fn session(self: &Arc<Self>) -> Result<(), Deaf> {
        // The permit counts the connection for as long as it is there.
        let Made { client, connection, permit, .. } =
            connect(&self.shared).await.map_err(|fault| Deaf::of(&fault))?;
        let own = self.clone();
        let receive = connection.drive(move |message| {
            if let AsyncMessage::Notification(notification) = message {
                own.on(Message::Text(notification.payload()));
            }
        });
        let work = async {
            let probe = timeout(self.shared.connect_timeout, self.probe(&client));
            probe.await.unwrap_or(Err(Deaf::Lost))?;
            self.state
                .send_modify(|ears| *ears = Ears { able: true, wanted: ears.wanted, open: false });
            self.shared.direct.send_replace(true);
            self.on(Message::Interrupted);
            let mut states = self.state.subscribe();
            loop {
                states.mark_unchanged();
                let next = self.next(&client);
                timeout(CHECK, next).await.unwrap_or(Err(Deaf::Lost))?;
                // Look at once for changes that happened meanwhile.
                let _ = timeout(CHECK, states.changed()).await;
            }
        };
        let heard = race(work, receive).await.unwrap_or(Ok(()));
        drop(permit);
        heard
    }

    /// Starts or stops listening, as wanted; otherwise checks that the connection is still up.
    async fn next(&self, client: &Client) -> Result<(), Deaf> {
        let mut begins = false;
        let ends = self.state.send_if_modified(|ears| {
            begins = ears.wanted && !ears.open;
            // From here on, a caller that wants to hear something waits until the connection listens again.
            !ears.wanted && std::mem::replace(&mut ears.open, false)
        });
        match (begins, ends) {
            (true, _) => {
                self.listen(client).await?;
                self.state.send_modify(|ears| ears.open = true);
                Ok(())
            }
            (_, true) => self.unlisten(client).await,
            (false, false) => client.batch_execute("SELECT 1").await.map_err(deaf),
        }
    }

    /// Checks that messages arrive: sends one over another connection, and waits for it.
    async fn probe(&self, client: &Client) -> Result<(), Deaf> {
        client.batch_execute(&format!("LISTEN {}", self.channel())).await.map_err(deaf)?;
        let live = self.lane.up().ok_or(Deaf::Lost)?;
        let echo = [(self.process(), "echo".to_owned())];
        live.send(&echo).await.map_err(|fault| Deaf::of(&fault))?;
        if timeout(ECHO, self.echoed.notified()).await.is_err() {
            return Err(Deaf::Pooled);
        }
        client.batch_execute(&format!("UNLISTEN {}", self.channel())).await.map_err(deaf)
    }

    async fn listen(&self, client: &Client) -> Result<(), Deaf> {
        client.batch_execute(&format!("LISTEN {}", self.channel())).await.map_err(deaf)?;
        // Held while the connection listens, so that others can see it. It is taken only here, because a pooler
        // would leave it on another client's connection.
        const LIVES: &str = "SELECT pg_advisory_lock(hashtextextended($1, 7233187398472430595))";
        let process = self.process();
        client.query_typed(LIVES, &[(&process, Type::TEXT)]).await.map(|_| ()).map_err(deaf)
    }

    async fn unlisten(&self, client: &Client) -> Result<(), Deaf> {
        const DEAF: &str = "SELECT pg_advisory_unlock(hashtextextended($1, 7233187398472430595))";
        let process = self.process();
        client.query_typed(DEAF, &[(&process, Type::TEXT)]).await.map_err(deaf)?;
        client.batch_execute(&format!("UNLISTEN {}", self.channel())).await.map_err(deaf)
    }

    /// The name of a process has only digits and lower-case letters.
    fn channel(&self) -> String {
        format!("\"distlock_{}\"", self.process())
    }
}

fn deaf(error: tokio_postgres::Error) -> Deaf {
    Deaf::of(&Fault::of(&error))
}

/// Why nothing is heard.
enum Deaf {
    Lost,
    Pooled,
    Refused,
}

impl Deaf {
    fn of(fault: &Fault) -> Self {
        if fault.passing { Self::Lost } else { Self::Refused }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Lost => "the connection was lost",
            Self::Pooled => {
                "LISTEN has no effect, as behind a pooler that gives each transaction to another connection"
            }
            Self::Refused => "the server refused LISTEN",
        }
    }
}
