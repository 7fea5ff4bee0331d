//! A connection's socket, which can move: it is watched by the engine's reactor, or by that of the
//! runtime on which its answers are waited for.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::runtime::Handle;

/// A socket that a reactor watches.
enum Watched {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// A socket that none watches.
enum Loose {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl Watched {
    fn stream(&mut self) -> Pin<&mut dyn Stream> {
        match self {
            Self::Tcp(stream) => Pin::new(stream),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream),
        }
    }

    fn loosen(self) -> io::Result<Loose> {
        Ok(match self {
            Self::Tcp(stream) => Loose::Tcp(stream.into_std()?),
            #[cfg(unix)]
            Self::Unix(stream) => Loose::Unix(stream.into_std()?),
        })
    }
}

impl Loose {
    /// Another handle of the same socket.
    fn again(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            #[cfg(unix)]
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    /// Has it watched by the runtime this is called on, which must be one that watches sockets.
    fn watch(self) -> io::Result<Watched> {
        Ok(match self {
            Self::Tcp(stream) => Watched::Tcp(TcpStream::from_std(stream)?),
            #[cfg(unix)]
            Self::Unix(stream) => Watched::Unix(UnixStream::from_std(stream)?),
        })
    }
}

/// Who watches a socket.
enum Place {
    Engine(Watched),
    /// The engine's own handle is loose, or its thread would be woken for nothing by every answer.
    Elsewhere(Watched, Loose),
    /// Nobody: the connection is lost.
    Lost,
}

/// Moves a socket.
#[derive(Clone)]
pub(super) struct Mover {
    place: Arc<Mutex<Place>>,
    engine: Handle,
}

impl Mover {
    /// From here on the runtime this is called on watches the socket, unless that fails.
    pub(super) fn to_this_runtime(&self) -> bool {
        let mut place = self.place();
        let (moved, there) = match std::mem::replace(&mut *place, Place::Lost) {
            Place::Engine(own) => match own.loosen() {
                Ok(loose) => match loose.again().and_then(Loose::watch) {
                    Ok(watched) => (true, Place::Elsewhere(watched, loose)),
                    Err(_) => (false, self.back(loose)),
                },
                Err(_) => (false, Place::Lost),
            },
            other => (false, other),
        };
        *place = there;
        moved
    }

    /// From here on the engine does.
    pub(super) fn to_engine(&self) {
        self.recall(&mut self.place());
    }

    fn recall(&self, place: &mut Place) {
        *place = match std::mem::replace(place, Place::Lost) {
            Place::Elsewhere(watched, loose) => {
                drop(watched);
                self.back(loose)
            }
            other => other,
        };
    }

    fn back(&self, loose: Loose) -> Place {
        let _on_engine = self.engine.enter();
        loose.watch().map_or(Place::Lost, Place::Engine)
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket as the client library sees it.
pub(super) struct Socket(Mover);

impl Socket {
    /// To be called on the engine.
    pub(super) fn tcp(stream: TcpStream) -> (Self, Mover) {
        Self::new(Watched::Tcp(stream))
    }

    /// To be called on the engine.
    #[cfg(unix)]
    pub(super) fn unix(stream: UnixStream) -> (Self, Mover) {
        Self::new(Watched::Unix(stream))
    }

    fn new(own: Watched) -> (Self, Mover) {
        let place = Arc::new(Mutex::new(Place::Engine(own)));
        let mover = Mover { place, engine: Handle::current() };
        (Self(mover.clone()), mover)
    }

    fn act<T>(
        &self,
        mut act: impl FnMut(Pin<&mut dyn Stream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut place = self.0.place();
        if let Place::Elsewhere(watched, _) = &mut *place {
            match act(watched.stream()) {
                // Its runtime is gone, or the connection: tried again on the engine's, that shows.
                Poll::Ready(Err(_)) => self.0.recall(&mut place),
                done => return done,
            }
        }
        match &mut *place {
            Place::Engine(own) => act(own.stream()),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.act(|stream| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.act(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.act(|stream| stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.act(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.act(|stream| stream.poll_shutdown(cx))
    }
}
