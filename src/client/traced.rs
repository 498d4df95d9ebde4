//! Requests as spans: how one is called, what is noted of it, and the `traceparent` that goes out with it.
//!
//! Every write has a span; a read has one within a reconcile. Watches, and what an election sends, have none: they go on at
//! rest. Nothing here changes what is sent but for that one header.

use std::{borrow::Cow, sync::Arc};

use http::{Method, Request, Uri, uri::PathAndQuery};
use opentelemetry::{
    KeyValue,
    trace::{Span as _, Status},
};
use opentelemetry_sdk::trace::Span as SdkSpan;
use tracing::Span;

use super::{host_and_port, shown};
use crate::telemetry::spans;

/// Where requests go, as their spans say it.
#[derive(Clone, Debug)]
pub struct Destination {
    host: Arc<str>,
    port: u16,
    /// The URL before the path of a request.
    base: Arc<str>,
}

impl Destination {
    /// An API server at this URL.
    pub fn new(url: &Uri) -> Self {
        let (host, port) = host_and_port(url);
        Destination { host: host.into(), port, base: shown(url).into() }
    }
}

/// The span of a request that is under way, if it has one, until its end is told. Dropped before that, the request was given up.
#[derive(Debug)]
pub struct Traced(Option<SdkSpan>);

impl Traced {
    /// A write begins.
    pub fn write<B>(request: &mut Request<B>, to: &Destination) -> Self {
        Traced(begin(request, to))
    }

    /// A read begins.
    pub fn read<B>(request: &mut Request<B>, to: Option<&Destination>) -> Self {
        Traced(to.filter(|_| !Span::current().is_none()).and_then(|to| begin(request, to)))
    }

    /// It was answered with this code; where that is no success, with these words.
    pub fn answered(mut self, code: u16, words: Option<&str>) {
        let Some(mut span) = self.0.take() else { return };
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(code)));
        if let Some(words) = words {
            fail(span, code.to_string(), words);
        }
    }

    /// It was not answered.
    pub fn failed(mut self, kind: &'static str, error: &str) {
        self.tell_failure(kind, error);
    }

    fn tell_failure(&mut self, kind: &'static str, error: &str) {
        if let Some(span) = self.0.take() {
            fail(span, kind.to_owned(), error);
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.tell_failure("cancelled", "the request was given up");
    }
}

/// The span ends with this error.
fn fail(mut span: SdkSpan, kind: String, error: &str) {
    span.set_attribute(KeyValue::new("error.type", kind));
    span.set_status(Status::error(error.to_owned()));
}

/// A span for the request, which says from here on that it belongs to it; within the one that the request carries, or else
/// within what is being done.
fn begin<B>(request: &mut Request<B>, to: &Destination) -> Option<SdkSpan> {
    let within = request.extensions_mut().remove();
    let mut span = spans::request(within)?;
    let (method, uri) = (request.method(), request.uri());
    let Route { name, template } = route(method, uri.path());
    span.update_name(name);
    span.set_attributes([
        KeyValue::new("http.request.method", method.to_string()),
        KeyValue::new("url.path", uri.path().to_owned()),
        KeyValue::new("url.template", template),
        KeyValue::new("server.address", to.host.clone()),
        KeyValue::new("server.port", i64::from(to.port)),
        KeyValue::new("url.full", [&*to.base, uri.path_and_query().map_or("/", PathAndQuery::as_str)].concat()),
    ]);
    spans::inject(span.span_context(), request.headers_mut());
    Some(span)
}

/// What a request is about, whichever object it names.
#[derive(Debug, Eq, PartialEq)]
struct Route {
    /// A verb and a resource of the API.
    name: String,
    /// The path with placeholders.
    template: String,
}

fn route(method: &Method, path: &str) -> Route {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let start = if parts.first() == Some(&"api") { 2 } else { 3 };
    let (head, rest) = parts.split_at(start.min(parts.len()));
    let mut template = String::with_capacity(path.len() + "{namespace}{name}".len());
    for part in head {
        template.push('/');
        template.push_str(part);
    }
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => {
            template.push_str("/namespaces/{namespace}");
            rest
        }
        rest => rest,
    };
    let (resource, is_named) = match rest {
        [] => (Cow::Borrowed(path), false),
        [resource] => (Cow::Borrowed(*resource), false),
        [resource, _] => (Cow::Borrowed(*resource), true),
        [resource, _, subresource @ ..] => (Cow::Owned(format!("{resource}/{}", subresource.join("/"))), true),
    };
    for (index, part) in rest.iter().enumerate() {
        template.push('/');
        template.push_str(if index == 1 { "{name}" } else { part });
    }
    let verb = match *method {
        Method::GET if is_named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        ref other => other.as_str(),
    };
    Route { name: [verb, &resource].join(" "), template }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_called_as_the_api_calls_them() {
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
            let expected = Route { name: name.to_owned(), template: template.to_owned() };
            assert_eq!(route(&method, path), expected, "{path}");
        }
    }

    #[test]
    fn a_destination_is_told_with_its_port_and_without_brackets() {
        for (url, host, port, base) in [
            ("https://host/", "host", 443, "https://host"),
            ("http://host/behind/a/proxy/", "host", 80, "http://host/behind/a/proxy"),
            ("https://[::1]:6443", "::1", 6443, "https://[::1]:6443"),
            ("https://user:password@host:6443/a?b=c", "host", 6443, "https://host:6443/a"),
        ] {
            let to = Destination::new(&url.parse().unwrap());
            assert_eq!((&*to.host, to.port, &*to.base), (host, port, base), "{url}");
        }
    }
}
