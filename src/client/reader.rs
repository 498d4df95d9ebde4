//! The reading client: bounds the time of each read, and says why one gave no answer. It repeats nothing.

use std::time::Duration;

use http::{Request, Response, Uri};
use kube::{Client, client::Body};
use serde::de::DeserializeOwned;

use super::{
    in_full, in_words,
    traced::{Destination, Traced},
};

/// How long a read may take, watches apart.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a read gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", READ_TIMEOUT.as_secs())]
    Timeout,
    /// It could not be reached, or it refused.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The one way by which controllers read anything.
#[derive(Clone)]
pub struct Reader {
    client: Client,
    /// Where reads within a reconcile go; `None`: they have no spans.
    to: Option<Destination>,
}

impl Reader {
    /// Reads through `client`, which talks to the API server at `url`.
    pub fn new(client: Client, url: &Uri) -> Self {
        Reader { client, to: Some(Destination::new(url)) }
    }

    /// Reads through `client`, of which no trace tells.
    pub fn untraced(client: Client) -> Self {
        Reader { client, to: None }
    }

    /// Reads one answer, within a bounded time.
    ///
    /// # Errors
    ///
    /// When the API server is not reached, does not answer in time, or refuses.
    pub async fn read<T: DeserializeOwned>(&self, mut request: Request<Vec<u8>>) -> Result<T, ReadError> {
        let traced = Traced::read(&mut request, self.to.as_ref());
        match tokio::time::timeout(READ_TIMEOUT, self.client.request(request)).await {
            Ok(Ok(answer)) => {
                traced.answered(200, None);
                Ok(answer)
            }
            Ok(Err(error)) => {
                match &error {
                    kube::Error::Api(status) => traced.answered(status.code, Some(&in_words(status))),
                    error => traced.failed("transport", &in_full(error)),
                }
                Err(error.into())
            }
            Err(_) => {
                traced.failed("timeout", &ReadError::Timeout.to_string());
                Err(ReadError::Timeout)
            }
        }
    }

    /// Reads one object; `None` when it does not exist.
    ///
    /// # Errors
    ///
    /// As [`Reader::read`].
    pub async fn read_one<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> Result<Option<T>, ReadError> {
        match self.read(request).await {
            Ok(object) => Ok(Some(object)),
            Err(ReadError::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for an answer that has no end: a watch. It has no span, for it goes on at rest.
    ///
    /// # Errors
    ///
    /// When the API server is not reached.
    pub async fn ask(&self, request: Request<Vec<u8>>) -> kube::Result<Response<Body>> {
        self.client.send(request.map(Body::from)).await
    }
}
