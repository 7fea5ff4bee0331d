//! How a service starts and ends.

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;

use crate::arguments::{Arguments, USAGE};

/// Serves until it was asked to end. Why it could not start is said in words.
pub async fn run<F>(serve: impl FnOnce(Arguments) -> F) -> ExitCode
where
    F: Future<Output = Result<(), Box<dyn Error>>>,
{
    let arguments = match Arguments::parse() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("{mistake}");
            return ExitCode::FAILURE;
        }
    };
    // What the locks have to say, an outage for example, goes to the console.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match serve(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            eprintln!("The shop cannot open: {text}");
            ExitCode::FAILURE
        }
    }
}

/// A listener at this port, or which port it is that cannot be used.
pub fn listen(port: u16) -> Result<TcpListener, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| format!("port {port}: {error}"))
}

/// Resolves when the process is asked to end: Ctrl-C, or SIGTERM from whatever runs containers.
pub async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
