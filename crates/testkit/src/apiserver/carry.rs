//! Takes a request through the faults into the store, and its answer back to the client.
//!
//! The server handles each accepted request in a separate task, so a client that gives up does not
//! stop it, as in the real server.

use std::{
    future::pending,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use rand::RngExt;
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    Shared,
    faults::{Fault, Hit},
    feed::feed,
    log::LoggedRequest,
    read::presented,
    request::{ApiRequest, Verb},
    service::{AnswerBody, Cut},
    status::Status,
    store::State,
    watch::Opened,
};

/// The time limit of the real server for a request that is not a watch.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// After this many violations of the bound, the server executes no more requests.
const RUNAWAY: usize = 20;

/// The result of a request.
pub enum Answer {
    /// An object, a list or a Status, with its code.
    Json(u16, Value),
    /// An open watch.
    Watch(Opened),
    /// The server does not serve this path.
    NoSuchPath,
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self::Json(status.code, status.to_value())
    }
}

impl Answer {
    fn code(&self) -> u16 {
        match self {
            Self::Json(code, _) => *code,
            Self::Watch(_) => 200,
            Self::NoSuchPath => 404,
        }
    }

    /// The HTTP response of this server.
    pub fn into_response(self, server: &Arc<Shared>) -> Response<AnswerBody> {
        let code = StatusCode::from_u16(self.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (content_type, body) = match self {
            Self::Json(_, value) => ("application/json", AnswerBody::Whole(Some(value.to_string().into()))),
            Self::NoSuchPath => {
                let text = Bytes::from_static(b"404 page not found\n");
                ("text/plain; charset=utf-8", AnswerBody::Whole(Some(text)))
            }
            Self::Watch(opened) => {
                let (sender, receiver) = mpsc::unbounded_channel();
                tokio::spawn(feed(Arc::downgrade(server), opened, sender));
                ("application/json", AnswerBody::Stream(receiver))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if code == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn garbled(self, server: &Arc<Shared>) -> Response<AnswerBody> {
        let mut response = self.into_response(server);
        if let AnswerBody::Whole(Some(bytes)) = response.body_mut() {
            *bytes = bytes.slice(..bytes.len() / 2);
        }
        response
    }
}

type Reply = oneshot::Sender<Result<Response<AnswerBody>, Cut>>;

/// Accepts a request and waits for its answer; forever, if a fault suppresses the answer.
pub async fn accept(shared: &Arc<Shared>, request: Arc<ApiRequest>) -> Result<Response<AnswerBody>, Cut> {
    let (sender, receiver) = oneshot::channel();
    let (id, hit) = shared.with(|state| {
        let hit = state.faults.hit(&request, &mut state.coverage);
        let (id, at) = (state.log.len(), state.clock.elapsed());
        state.observers.arrived(&request, at);
        let (request, fault) = (Arc::clone(&request), hit.as_ref().map(|hit| hit.fault.clone()));
        state.log.push(LoggedRequest { at, request, fault, executed_at: None, outcome: None, answered: None });
        (id, hit)
    });
    let handler = Handler { server: Arc::downgrade(shared), request, id };
    tokio::spawn(handler.handle(hit, sender));
    match receiver.await {
        Ok(answer) => answer,
        // The handler ended without an answer: the client gets silence, not an error.
        Err(_) => pending().await,
    }
}

/// Handles one request.
struct Handler {
    server: Weak<Shared>,
    request: Arc<ApiRequest>,
    id: usize,
}

impl Handler {
    async fn handle(self, hit: Option<Hit>, reply: Reply) {
        if let Some(Hit { fault: Fault::ArriveLate(delay), .. }) = &hit {
            sleep(*delay).await;
        }
        let deadline = Instant::now() + self.request.timeout().unwrap_or(TIME_LIMIT).min(TIME_LIMIT);
        if let Some(latency) = self.with(|state| state.latency(state.settings.request_latency)) {
            sleep(latency).await;
        }
        let Some(Hit { fault, gate }) = hit else {
            let answer = self.execute(deadline).await;
            return self.answer(reply, answer).await;
        };
        match fault {
            Fault::Refuse(status) => self.answer(reply, Some(status.into())).await,
            Fault::CutBefore => drop(reply.send(Err(Cut))),
            Fault::ExecuteThenCut => {
                self.execute(deadline).await;
                drop(reply.send(Err(Cut)));
            }
            Fault::ExecuteThenError(code) => {
                self.execute(deadline).await;
                self.answer(reply, Some(Status::of_code(code).into())).await;
            }
            Fault::ExecuteThenGarble => {
                if let (Some(answer), Some(server)) = (self.execute(deadline).await, self.server.upgrade()) {
                    drop(reply.send(Ok(answer.garbled(&server))));
                }
            }
            Fault::Delay(delay) => self.execute_after(delay, deadline, Some(reply)).await,
            Fault::ArriveLate(_) => {
                let answer = self.execute(deadline).await;
                self.answer(reply, answer).await;
            }
            Fault::ExecuteTwice => {
                let first = self.execute(deadline).await;
                let second = self.execute(deadline).await;
                let is_first = self.with(|state| state.random.random()) == Some(true);
                self.answer(reply, if is_first { first } else { second }).await;
            }
            Fault::HoldAnswer => {
                let answer = self.execute(deadline).await;
                drop(gate.acquire().await.map(|permit| permit.forget()));
                self.answer(reply, answer).await;
            }
            Fault::ExecuteLate(delay) => {
                drop(reply.send(Err(Cut)));
                self.execute_after(delay, deadline, None).await;
            }
            Fault::ExecuteUnanswered(delay) => {
                self.execute_after(delay, deadline, None).await;
                drop(reply);
            }
        }
    }

    /// Executes after this time. If the deadline comes first, answers with a timeout, and executes the request later
    /// only if the server does not honour timeouts.
    async fn execute_after(&self, delay: Duration, deadline: Instant, reply: Option<Reply>) {
        let due = sleep(delay);
        tokio::pin!(due);
        let in_time = tokio::select! {
            biased;
            () = &mut due => true,
            () = sleep_until(deadline) => false,
        };
        if in_time {
            let answer = self.execute(deadline).await;
            if let Some(reply) = reply {
                self.answer(reply, answer).await;
            }
            return;
        }
        if let Some(reply) = reply {
            self.answer(reply, Some(Status::timeout().into())).await;
        }
        if self.with(|state| state.settings.honour_timeout) == Some(false) {
            due.await;
            // The promise does not cover a request that is executed after its sender's lease expired.
            let at = |state: &State| state.clock.elapsed();
            if self.with(|state| state.observers.one_writer.may_land(&self.request.instance, at(state))) == Some(true) {
                self.execute(deadline).await;
            }
        }
    }

    async fn answer(&self, reply: Reply, answer: Option<Answer>) {
        let Some(answer) = answer else { return };
        if let Some(latency) = self.with(|state| state.latency(state.settings.answer_latency)) {
            sleep(latency).await;
        }
        self.with(|state| {
            let entry = &mut state.log[self.id];
            entry.answered = Some(answer.code());
            // If the client has given up, the answer is lost.
            if !reply.is_closed() {
                let body = if let Answer::Json(_, body) = &answer { Some(body) } else { None };
                state.observers.answered(entry, body, state.clock.elapsed());
            }
        });
        if let Some(server) = self.server.upgrade() {
            drop(reply.send(Ok(answer.into_response(&server))));
        }
    }

    /// Executes the request. While the store has no quorum, it waits, and answers with a timeout at the deadline.
    async fn execute(&self, deadline: Instant) -> Option<Answer> {
        let waits = self.with(|state| {
            let (answer, action) = state.quorum.wait(self.id, &self.request)?;
            state.coverage.hit(action);
            Some(answer)
        })?;
        let Some(answer) = waits else { return Some(execute(&self.server.upgrade()?, self.id, &self.request)) };
        if let Ok(Ok(answer)) = timeout_at(deadline, answer).await {
            return Some(answer);
        }
        sleep_until(deadline).await;
        Some(Status::timeout().into())
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        Some(self.server.upgrade()?.with(act))
    }
}

/// Executes a request now.
pub fn execute(server: &Arc<Shared>, id: usize, request: &ApiRequest) -> Answer {
    let answer = server.with(|state| {
        let answer = state.execute(request).unwrap_or_else(|rejection| rejection);
        let entry = &mut state.log[id];
        (entry.executed_at, entry.outcome) = (Some(state.clock.elapsed()), Some(answer.code()));
        state.observers.executed(entry, state.resource_version);
        answer
    });
    server.changed();
    answer
}

impl State {
    fn execute(&mut self, request: &ApiRequest) -> Result<Answer, Answer> {
        // A runaway operator would use up the memory of the machine.
        if self.observers.bound.exceeded > RUNAWAY {
            return Err(Status::of_code(503).into());
        }
        if self.settings.unserved.contains(request.kind.qualified) {
            return Err(Answer::NoSuchPath);
        }
        if !matches!(request.subresource.as_str(), "" | "status") {
            return Err(Status::of_code(404).into());
        }
        match request.verb {
            Verb::Get => self.read(request).map(|o| Answer::Json(200, o)),
            Verb::List => self.list(request).map(|o| Answer::Json(200, o)),
            Verb::Watch => self.watch(request).map(Answer::Watch),
            Verb::Create => self.create(request).map(|o| Answer::Json(201, presented(&o, request.metadata_only()))),
            Verb::Patch => self.patch(request).map(|o| Answer::Json(200, (*o).clone())),
            Verb::Delete => self.delete(request).map(|o| Answer::Json(200, o)),
        }
        .map_err(Answer::from)
    }
}
