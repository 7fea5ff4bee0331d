//! The connection that listens for the messages to one process.
//!
//! Each message costs the server time for every session that listens, whatever its channel. So the connection
//! stays open, but it listens only while this process [needs messages](NotifyListener::listen).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock_core::back_off::BackOff;
use distlock_core::reconnect::{Reconnect, keep_connected};
use distlock_core::store::{Fault, Listener, Notification, StoreEvents};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{Driving, OpenConnection, connect, race};
use crate::database::{ConnectionPermit, Database};
use crate::error::PostgresError;
use crate::link::PostgresLink;
use crate::messages;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a refusal of `LISTEN`. Behind a pooler the server accepts `LISTEN`, and no message arrives.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// The longest time that an echo takes.
const ECHO_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which the connection is checked, and the time that a check has.
const CHECK: Duration = Duration::from_secs(10);

/// The message that a process sends to itself, to check that messages arrive.
const ECHO: &str = "echo";

/// The listener of one process.
pub(crate) struct NotifyListener {
    database: Arc<Database>,
    /// The link that sends the echo. Over the listening connection itself, an echo would arrive behind a pooler,
    /// too.
    link: Arc<PostgresLink>,
    events: Arc<dyn StoreEvents>,
    process: OnceLock<(String, Listener)>,
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
    pub(crate) fn new(
        database: Arc<Database>,
        link: Arc<PostgresLink>,
        events: Arc<dyn StoreEvents>,
    ) -> Self {
        let (process, state) = (OnceLock::new(), watch::Sender::default());
        Self { database, link, events, process, state, echoed: Notify::new() }
    }

    pub(crate) fn start(self: &Arc<Self>, process: &str, listener: Listener, handle: &Handle) {
        let is_first = self.process.set((process.to_owned(), listener)).is_ok();
        if is_first && self.database.url.listens {
            let supervisor =
                ListenSupervisor { listener: self.clone(), denied: None, was_denied: false };
            handle.spawn(keep_connected(supervisor, BackOff::new(FIRST_PAUSE, LONGEST_PAUSE)));
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

    fn receive(&self, text: &str) {
        match self.process.get() {
            _ if text == ECHO => self.echoed.notify_one(),
            Some((_, listener)) => messages::deliver(text, listener),
            None => {}
        }
    }

    /// Reports that messages may have been missed, because listening began or ended.
    fn interrupted(&self) {
        if let Some((_, listener)) = self.process.get() {
            listener(Notification::Interrupted);
        }
    }

    /// Connects, and checks that messages arrive.
    async fn open(self: &Arc<Self>) -> Result<ListenConnection, ListenError> {
        self.link.until_up().await;
        let OpenConnection { client, driver, permit, .. } =
            connect(&self.database).await.map_err(|error| ListenError::of(&error))?;
        let own = self.clone();
        let mut driving = driver.drive(move |message| {
            if let AsyncMessage::Notification(notification) = message {
                own.receive(notification.payload());
            }
        });
        let probe = timeout(self.database.connect_timeout, self.probe(&client));
        let probed = race(probe, &mut driving).await.and_then(Result::ok);
        probed.unwrap_or(Err(ListenError::Lost))?;
        Ok(ListenConnection { client, driving, _permit: permit })
    }

    /// Listens whenever that is needed, until the connection ends.
    async fn serve(&self, connection: &mut ListenConnection) -> ListenError {
        self.state.send_modify(|state| (state.is_able, state.is_listening) = (true, false));
        self.database.is_direct.send_replace(true);
        self.interrupted();
        let ListenConnection { client, driving, .. } = connection;
        let work = async {
            let mut states = self.state.subscribe();
            loop {
                states.mark_unchanged();
                match timeout(CHECK, self.next(client)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return error,
                    Err(_) => return ListenError::Lost,
                }
                // Handle at once a change that happened meanwhile.
                let _ = timeout(CHECK, states.changed()).await;
            }
        };
        race(work, driving).await.unwrap_or(ListenError::Lost)
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
        session
            .send(&[self.process()], &[ECHO.to_owned()])
            .await
            .map_err(|error| ListenError::of(&error))?;
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

/// The connection that listens.
struct ListenConnection {
    client: Client,
    driving: Driving,
    /// It counts the connection as long as the connection is open.
    _permit: ConnectionPermit,
}

/// The supervisor of the listener's connection.
struct ListenSupervisor {
    listener: Arc<NotifyListener>,
    /// The reason of the last failure, if the server delivers no messages.
    denied: Option<&'static str>,
    /// The store has reported that the server delivers no messages.
    was_denied: bool,
}

impl ListenSupervisor {
    fn failed(&mut self, error: ListenError) -> Fault {
        let words = error.words();
        self.denied = (!matches!(error, ListenError::Lost)).then_some(words);
        PostgresError::unreachable(words).into()
    }
}

impl Reconnect for ListenSupervisor {
    type Connected = ListenConnection;

    async fn connect(&mut self) -> Result<ListenConnection, Fault> {
        let opened = self.listener.open().await;
        opened.map_err(|error| self.failed(error))
    }

    async fn run(&mut self, connected: &mut ListenConnection) -> Fault {
        let error = self.listener.serve(connected).await;
        self.failed(error)
    }

    fn down(&mut self, _fault: &Fault) {
        self.listener.database.is_direct.send_replace(false);
        let state = self.listener.state.send_replace(ListenState::default());
        if state.is_able {
            self.listener.interrupted();
            self.was_denied = false;
        }
        if let Some(words) = self.denied
            && !std::mem::replace(&mut self.was_denied, true)
        {
            self.listener.events.denied(words.to_owned());
        }
    }

    async fn wait(&mut self, pause: Duration) {
        sleep(if self.denied.take().is_some() { REFUSED_PAUSE } else { pause }).await;
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
        if error.fault.passing { Self::Lost } else { Self::Refused }
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
