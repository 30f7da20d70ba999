//! Answers that come before a request is sent to its end: a server that refuses an object may close
//! the connection in the middle of it, and its reason is what the user needs (full, denied, too
//! long).
//!
//! So a connection that takes no more bytes is read all the same; only if no answer is there, the
//! failed write is what is reported. It stands below encryption, which would not read any more.

use std::io::{self, ErrorKind};
use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

/// Puts the reading of early answers into a chain of connectors.
#[derive(Debug)]
pub struct ReadsEarlyAnswers;

impl<In: Transport> Connector<In> for ReadsEarlyAnswers {
    type Out = EarlyAnswers<In>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<EarlyAnswers<In>>, Error> {
        Ok(chained.map(|connection| EarlyAnswers {
            connection,
            failed_write: None,
        }))
    }
}

/// A connection that is read after the other side stopped to take bytes.
#[derive(Debug)]
pub struct EarlyAnswers<In> {
    connection: In,
    /// From then on nothing is sent.
    failed_write: Option<ErrorKind>,
}

impl<In: Transport> Transport for EarlyAnswers<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.connection.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        if self.failed_write.is_some() {
            return Ok(());
        }
        match self.connection.transmit_output(amount, timeout) {
            Err(Error::Io(error)) if is_end(error.kind()) => {
                self.failed_write = Some(error.kind());
                Ok(())
            }
            sent => sent,
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let read = self.connection.await_input(timeout);
        match (self.failed_write, read) {
            (Some(kind), Ok(false) | Err(Error::Io(_))) => Err(io::Error::from(kind).into()),
            (_, read) => read,
        }
    }

    fn is_open(&mut self) -> bool {
        self.failed_write.is_none() && self.connection.is_open()
    }

    fn is_tls(&self) -> bool {
        self.connection.is_tls()
    }
}

/// The other side takes no more.
fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}
