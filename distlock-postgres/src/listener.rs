//! The connection that listens for the messages to one process.
//!
//! Each message costs the server time for every session that listens, whatever its channel. So the connection
//! stays open, but it listens only while this process [needs messages](NotifyListener::listen).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{OpenConnection, connect, race};
use crate::database::Database;
use crate::error::PostgresError;
use crate::link::PostgresLink;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a refusal of `LISTEN`. Behind a pooler the server accepts `LISTEN`, and no message arrives.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// The longest time that an echo takes.
const ECHO_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which the connection is checked, and the time that a check has.
const CHECK: Duration = Duration::from_secs(10);

/// An event of the connection that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenEvent<'a> {
    /// A process or the server has sent this text.
    Text(&'a str),
    /// Listening began or ended, so messages may have been missed.
    Interrupted,
    /// The server executes commands, but delivers no messages.
    Denied(&'a str),
}

type EventHandler = Box<dyn Fn(ListenEvent<'_>) + Send + Sync>;

/// The listener of one process.
pub(crate) struct NotifyListener {
    database: Arc<Database>,
    /// The link that sends the echo. Over the listening connection itself, an echo would arrive behind a pooler,
    /// too.
    link: Arc<PostgresLink>,
    process: OnceLock<(String, EventHandler)>,
    state: watch::Sender<ListenState>,
    echoed: Notify,
}

/// The connection's abilities and the caller's needs.
#[derive(Debug, Clone, Copy, Default)]
struct ListenState {
    /// The connection is up, and messages arrive.
    is_able: bool,
    /// This process needs messages.
    is_needed: bool,
    /// The connection listens.
    is_listening: bool,
}

impl NotifyListener {
    pub(crate) fn new(database: Arc<Database>, link: Arc<PostgresLink>) -> Self {
        let (process, state) = (OnceLock::new(), watch::Sender::default());
        Self { database, link, process, state, echoed: Notify::new() }
    }

    pub(crate) fn start(self: &Arc<Self>, process: &str, on: EventHandler, handle: &Handle) {
        let is_first = self.process.set((process.to_owned(), on)).is_ok();
        if is_first && self.database.url.listens {
            handle.spawn(self.clone().supervise());
        }
    }

    pub(crate) fn is_able(&self) -> bool {
        self.state.borrow().is_able
    }

    /// Starts to listen. Returns whether the connection listens. If it does, every later message arrives.
    pub(crate) async fn listen(&self) -> bool {
        self.state.send_if_modified(|state| !std::mem::replace(&mut state.is_needed, true));
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| !state.is_able || state.is_listening).await;
        settled.is_ok_and(|state| state.is_listening)
    }

    /// Stops listening, because nobody waits for a message.
    pub(crate) fn stop_listening(&self) {
        self.state.send_if_modified(|state| std::mem::replace(&mut state.is_needed, false));
    }

    fn process(&self) -> &str {
        self.process.get().map_or("", |(process, _)| process)
    }

    fn on(&self, event: ListenEvent<'_>) {
        match (event, self.process.get()) {
            (ListenEvent::Text("echo"), _) => self.echoed.notify_one(),
            (event, Some((_, on))) => on(event),
            (_, None) => {}
        }
    }

    async fn supervise(self: Arc<Self>) {
        let (mut pause, mut was_denied) = (FIRST_PAUSE, false);
        loop {
            self.link.until_up().await;
            let ended = self.serve().await;
            self.database.is_direct.send_replace(false);
            let state = self.state.send_replace(ListenState::default());
            if state.is_able {
                self.on(ListenEvent::Interrupted);
                (pause, was_denied) = (FIRST_PAUSE, false);
            }
            if let Err(denied @ (ListenError::Pooled | ListenError::Refused)) = ended {
                if !std::mem::replace(&mut was_denied, true) {
                    self.on(ListenEvent::Denied(denied.words()));
                }
                pause = REFUSED_PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connects, and listens whenever that is needed, until the connection ends.
    async fn serve(self: &Arc<Self>) -> Result<(), ListenError> {
        // The permit counts the connection as long as the connection is open.
        let OpenConnection { client, driver, permit, .. } =
            connect(&self.database).await.map_err(|error| ListenError::of(&error))?;
        let own = self.clone();
        let receive = driver.drive(move |message| {
            if let AsyncMessage::Notification(notification) = message {
                own.on(ListenEvent::Text(notification.payload()));
            }
        });
        let work = async {
            let probe = timeout(self.database.connect_timeout, self.probe(&client));
            probe.await.unwrap_or(Err(ListenError::Lost))?;
            self.state.send_modify(|state| {
                (state.is_able, state.is_listening) = (true, false);
            });
            self.database.is_direct.send_replace(true);
            self.on(ListenEvent::Interrupted);
            let mut states = self.state.subscribe();
            loop {
                states.mark_unchanged();
                let next = self.next(&client);
                timeout(CHECK, next).await.unwrap_or(Err(ListenError::Lost))?;
                // Handle at once a change that happened meanwhile.
                let _ = timeout(CHECK, states.changed()).await;
            }
        };
        let ended = race(work, receive).await.unwrap_or(Ok(()));
        drop(permit);
        ended
    }

    /// Starts or stops listening, as needed. Otherwise checks that the connection is still open.
    async fn next(&self, client: &Client) -> Result<(), ListenError> {
        let mut begins = false;
        let ends = self.state.send_if_modified(|state| {
            begins = state.is_needed && !state.is_listening;
            // From here on, a caller that needs messages waits until the connection listens again.
            !state.is_needed && std::mem::replace(&mut state.is_listening, false)
        });
        match (begins, ends) {
            (true, _) => {
                self.begin(client).await?;
                self.state.send_modify(|state| state.is_listening = true);
                Ok(())
            }
            (_, true) => self.end(client).await,
            (false, false) => client.batch_execute("SELECT 1").await.map_err(listen_error),
        }
    }

    /// Checks that messages arrive: sends one over another connection, and waits for its echo.
    async fn probe(&self, client: &Client) -> Result<(), ListenError> {
        client.batch_execute(&format!("LISTEN {}", self.channel())).await.map_err(listen_error)?;
        let session = self.link.session().ok_or(ListenError::Lost)?;
        let echo = [(self.process(), "echo".to_owned())];
        session.send(&echo).await.map_err(|error| ListenError::of(&error))?;
        if timeout(ECHO_TIMEOUT, self.echoed.notified()).await.is_err() {
            return Err(ListenError::Pooled);
        }
        client.batch_execute(&format!("UNLISTEN {}", self.channel())).await.map_err(listen_error)
    }

    async fn begin(&self, client: &Client) -> Result<(), ListenError> {
        client.batch_execute(&format!("LISTEN {}", self.channel())).await.map_err(listen_error)?;
        // The connection holds this lock while it listens, so that others can tell. It takes the lock only here,
        // because a pooler would leave the lock on another client's connection.
        const HOLD: &str = "SELECT pg_advisory_lock(hashtextextended($1, 7233187398472430595))";
        let process = self.process();
        client.query_typed(HOLD, &[(&process, Type::TEXT)]).await.map(|_| ()).map_err(listen_error)
    }

    async fn end(&self, client: &Client) -> Result<(), ListenError> {
        const LET_GO: &str = "SELECT pg_advisory_unlock(hashtextextended($1, 7233187398472430595))";
        let process = self.process();
        client.query_typed(LET_GO, &[(&process, Type::TEXT)]).await.map_err(listen_error)?;
        client.batch_execute(&format!("UNLISTEN {}", self.channel())).await.map_err(listen_error)
    }

    /// Returns the channel of this process. It needs no escaping, because the name of a process has only digits
    /// and lower-case letters.
    fn channel(&self) -> String {
        format!("\"distlock_{}\"", self.process())
    }
}

fn listen_error(error: tokio_postgres::Error) -> ListenError {
    ListenError::of(&PostgresError::of(&error))
}

/// The reason why no messages arrive.
enum ListenError {
    Lost,
    Pooled,
    Refused,
}

impl ListenError {
    fn of(error: &PostgresError) -> Self {
        if error.passing { Self::Lost } else { Self::Refused }
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
