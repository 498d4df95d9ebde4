//! What the benchmark does to the cluster: many requests at a time, whose answers nobody reads.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use http::{Method, Request};
use kube::Client;
use serde_json::Value;

/// One request: method, path and body.
pub type Deed = (Method, String, Option<Value>);

/// Sends them, so many at a time, each over a connection of its own; an error is that of the first that was refused.
pub async fn send_all(client: &Client, width: usize, deeds: impl Iterator<Item = Deed>) -> Result<()> {
    futures::stream::iter(deeds)
        .map(|deed| send(client, deed))
        .buffer_unordered(width)
        .try_for_each(|()| std::future::ready(Ok(())))
        .await
}

async fn send(client: &Client, (method, path, body): Deed) -> Result<()> {
    let what = format!("{method} {path}");
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    // Of what is made or deleted, no more comes back than has to.
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
    let request = Request::builder().method(method).uri(path).header("content-type", content).header("accept", accept);
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    client.request_text(request.body(body)?).await.with_context(|| what).map(drop)
}
