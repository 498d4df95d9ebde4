//! Sends many requests in parallel.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use http::Method;
use kube::Client;
use serde_json::Value;

/// One request: method, path and body.
pub type Request = (Method, String, Option<Value>);

/// Sends them over `width` connections. Fails with the first error.
pub async fn send_all(client: &Client, width: usize, requests: impl Iterator<Item = Request>) -> Result<()> {
    futures::stream::iter(requests)
        .map(|request| send(client, request))
        .buffer_unordered(width)
        .try_for_each(|()| std::future::ready(Ok(())))
        .await
}

async fn send(client: &Client, (method, path, body): Request) -> Result<()> {
    let what = format!("{method} {path}");
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    // The smallest response that the API server offers.
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", content).header("accept", accept);
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    client.request_text(request.body(body)?).await.with_context(|| what).map(drop)
}
