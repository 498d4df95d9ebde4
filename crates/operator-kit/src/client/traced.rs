//! The spans of requests, and the `traceparent` header that goes out with them.
//!
//! Every write has a span, and so has every read within a reconcile. Watches and requests of the election have none, because they continue
//! while nothing happens. tower-http's `TraceLayer` cannot replace this: it does not see errors in a body, nor requests that are given up.

use std::cell::LazyCell;

use http::{Method, Request, Uri, uri::PathAndQuery};
use opentelemetry::{propagation::TextMapPropagator, trace::Status};
use opentelemetry_http::HeaderInjector;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Span, field::Empty, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::connect::host_and_port;
use crate::{
    telemetry::spans::{self, SpanRef},
    text::shown,
};

/// The span of a request. A request whose span is dropped before its end was given up.
#[derive(Debug)]
pub struct Traced(Span);

impl Traced {
    /// Begins the span of a write to the API server at this URL.
    pub fn write<B>(request: &mut Request<B>, to: &Uri) -> Self {
        Traced(begin(request, to))
    }

    /// Begins the span of a read within a reconcile. Other reads have none.
    pub fn read<B>(request: &mut Request<B>, to: &Uri) -> Self {
        Traced(if Span::current().is_none() { Span::none() } else { begin(request, to) })
    }

    /// Ends the span with a status code and, unless it is a success, the error.
    pub fn answered(mut self, code: u16, error: Option<&str>) {
        self.0.record("http.response.status_code", i64::from(code));
        match error {
            Some(error) => self.failed(&code.to_string(), error),
            None => self.0 = Span::none(),
        }
    }

    /// Ends the span with an error of this kind.
    pub fn failed(&mut self, kind: &str, error: &str) {
        let span = std::mem::replace(&mut self.0, Span::none());
        span.record("error.type", kind);
        span.set_status(Status::error(error.to_owned()));
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.failed("cancelled", "the request was given up");
    }
}

/// Begins a span for the request. Its parent is the span that the request carries, or else the current one.
fn begin<B>(request: &mut Request<B>, to: &Uri) -> Span {
    let parent: Option<SpanRef> = request.extensions_mut().remove();
    let (method, uri) = (request.method(), request.uri());
    // Without an exporter, no value of the span is computed.
    let route = LazyCell::new(|| route(method, uri.path()));
    let span = info_span!(
        target: spans::TARGET,
        "request",
        otel.name = route.0,
        otel.kind = "client",
        http.request.method = method.as_str(),
        http.response.status_code = Empty,
        error.type = Empty,
        url.path = uri.path(),
        url.template = route.1,
        url.full = [&*shown(to), uri.path_and_query().map_or("/", PathAndQuery::as_str)].concat(),
        server.address = host_and_port(to).0,
        server.port = i64::from(host_and_port(to).1),
    );
    if let Some(parent) = parent {
        parent.adopt(&span);
    }
    TraceContextPropagator::new().inject_context(&span.context(), &mut HeaderInjector(request.headers_mut()));
    span
}

/// The kind of a request, without the name of an object: a verb and a resource of the API, and the path with placeholders.
fn route(method: &Method, path: &str) -> (String, String) {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut resource_index = if parts.first() == Some(&"api") { 2 } else { 3 };
    if parts.get(resource_index) == Some(&"namespaces") && parts.len() > resource_index + 2 {
        parts[resource_index + 1] = "{namespace}";
        resource_index += 2;
    }
    let is_named = parts.len() > resource_index + 1;
    if is_named {
        parts[resource_index + 1] = "{name}";
    }
    let resource = match parts.get(resource_index..).unwrap_or_default() {
        [] => path.to_owned(),
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, subresource @ ..] => format!("{resource}/{}", subresource.join("/")),
    };
    let verb = match *method {
        Method::GET if is_named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        ref other => other.as_str(),
    };
    (format!("{verb} {resource}"), format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_named_by_verb_and_resource() {
        for (method, path, name, template) in [
            (Method::POST, "/api/v1/namespaces/a/pods", "create pods", "/api/v1/namespaces/{namespace}/pods"),
            (Method::GET, "/api/v1/pods", "list pods", "/api/v1/pods"),
            (
                Method::DELETE,
                "/api/v1/namespaces/a/pods/web-1",
                "delete pods",
                "/api/v1/namespaces/{namespace}/pods/{name}",
            ),
            (
                Method::PATCH,
                "/apis/app.example.com/v1alpha1/namespaces/a/podsets/web/status",
                "patch podsets/status",
                "/apis/app.example.com/v1alpha1/namespaces/{namespace}/podsets/{name}/status",
            ),
            (Method::GET, "/api/v1/namespaces/a", "get namespaces", "/api/v1/namespaces/{name}"),
            (Method::GET, "/version", "list /version", "/version"),
        ] {
            assert_eq!(route(&method, path), (name.to_owned(), template.to_owned()), "{path}");
        }
    }

    #[test]
    fn a_destination_has_a_port_and_a_host_without_brackets() {
        for (url, host, port, base) in [
            ("https://host/", "host", 443, "https://host"),
            ("http://host/behind/a/proxy/", "host", 80, "http://host/behind/a/proxy"),
            ("https://[::1]:6443", "::1", 6443, "https://[::1]:6443"),
            ("https://user:password@host:6443/a?b=c", "host", 6443, "https://host:6443/a"),
        ] {
            let to = url.parse().unwrap();
            assert_eq!((host_and_port(&to), &*shown(&to)), ((host, port), base), "{url}");
        }
    }
}
