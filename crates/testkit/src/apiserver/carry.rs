//! Takes a request through the faults into the store, and its answer back to the client. Each accepted request has a task of its
//! own, so a client that gives up does not stop it, as in the real server.

use std::sync::atomic::Ordering;

use futures::stream;
use http::{Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use rand::RngExt;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{feed::feed, list::former_pages, *};

/// The time limit of the real server for a request that is not a watch.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// After this many violations of the bound, the server executes no more requests.
const RUNAWAY: usize = 20;

/// The answer to a request.
pub enum Answer {
    /// The HTTP code, and an object, a list or a Status.
    Json(u16, Value),
    Watch(Opened),
    NoSuchPath,
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self::Json(status.code, status.to_value())
    }
}

impl Answer {
    pub fn code(&self) -> u16 {
        match self {
            Self::Json(code, _) => *code,
            Self::Watch(_) => 200,
            Self::NoSuchPath => 404,
        }
    }

    /// The HTTP response of this server. A garbled one breaks off in the middle, unless it is a watch.
    pub fn into_response(self, server: &ApiServer, is_garbled: bool) -> Response<AnswerBody> {
        let code = self.code();
        let whole = |text: String| Full::from(text).map_err(|never| match never {}).boxed_unsync();
        let (content_type, body) = match self {
            Self::Json(_, value) => {
                let mut text = value.to_string();
                if is_garbled {
                    text.truncate(text.floor_char_boundary(text.len() / 2));
                }
                ("application/json", whole(text))
            }
            Self::NoSuchPath => ("text/plain; charset=utf-8", whole("404 page not found\n".to_owned())),
            Self::Watch(opened) => {
                let (sender, mut lines) = mpsc::unbounded_channel();
                tokio::spawn(feed(server.clone(), opened, sender));
                let frames = stream::poll_fn(move |cx| lines.poll_recv(cx).map(|line| Some(line?.map(Frame::data))));
                ("application/json", StreamBody::new(frames).boxed_unsync())
            }
        };
        let mut response = Response::builder().status(code).header(header::CONTENT_TYPE, content_type);
        if code == 429 {
            response = response.header(header::RETRY_AFTER, "1");
        }
        response.body(body).expect("its code and headers are valid")
    }
}

/// While the quorum of the store is lost: the action that took it, and the waiting requests in order of arrival.
#[derive(Default)]
pub struct Quorum(pub Option<(&'static str, Vec<Pending>)>);

pub struct Pending {
    pub id: usize,
    pub request: Arc<ApiRequest>,
    pub answer: oneshot::Sender<Answer>,
}

impl Quorum {
    /// Whether the quorum is lost. Kubelets and controllers then do nothing, and watches get no bookmarks.
    pub fn is_lost(&self) -> bool {
        self.0.is_some()
    }
}

type Reply = oneshot::Sender<Result<Response<AnswerBody>, Cut>>;

struct Handler {
    server: ApiServer,
    request: Arc<ApiRequest>,
    id: usize,
    deadline: Instant,
}

impl Handler {
    async fn handle(self, rule: Option<Arc<Rule>>, reply: Reply) {
        sleep(self.server.with(|state| state.latency(state.settings.request_latency))).await;
        let Some(rule) = rule else { return self.answer(reply, self.execute().await).await };
        match rule.fault.clone() {
            // The delay is over.
            Fault::ArriveLate(_) => self.answer(reply, self.execute().await).await,
            Fault::Refuse(status) => self.answer(reply, status.into()).await,
            Fault::RefuseLate(delay, status) => {
                sleep(delay).await;
                self.answer(reply, status.into()).await;
            }
            Fault::CutBefore => drop(reply.send(Err(Cut))),
            Fault::ExecuteThenCut => {
                self.execute().await;
                drop(reply.send(Err(Cut)));
            }
            Fault::ExecuteThenError(code) => {
                self.execute().await;
                self.answer(reply, Status::of_code(code).into()).await;
            }
            Fault::ExecuteThenGarble => {
                let garbled = self.execute().await.into_response(&self.server, true);
                drop(reply.send(Ok(garbled)));
            }
            Fault::Delay(delay) => self.execute_after(delay, Some(reply)).await,
            Fault::ExecuteTwice => {
                let (first, second) = (self.execute().await, self.execute().await);
                let is_first = self.server.with(|state| state.random.random());
                self.answer(reply, if is_first { first } else { second }).await;
            }
            Fault::HoldAnswer => {
                let answer = self.execute().await;
                // It is closed when the test releases the answer.
                let _ = rule.gate.acquire().await;
                self.answer(reply, answer).await;
            }
            Fault::ExecuteLate(delay) => {
                drop(reply.send(Err(Cut)));
                self.execute_after(delay, None).await;
            }
            Fault::ExecuteUnanswered(delay) => {
                self.execute_after(delay, None).await;
                std::future::pending().await
            }
        }
    }

    /// Executes after this time. If the deadline comes first, answers with a timeout, and executes the request later only if the server
    /// does not honour timeouts.
    async fn execute_after(&self, delay: Duration, reply: Option<Reply>) {
        let due = Instant::now() + delay;
        sleep_until(due.min(self.deadline)).await;
        let is_in_time = due <= self.deadline;
        let answer = if is_in_time { self.execute().await } else { Status::timeout().into() };
        if let Some(reply) = reply {
            self.answer(reply, answer).await;
        }
        if !is_in_time && self.server.with(|state| !state.settings.honour_timeout) {
            sleep_until(due).await;
            // The promise does not cover a request that is executed after its sender's lease expired.
            let may_land =
                |state: &mut State| state.observers.one_writer.may_land(&self.request.instance, state.clock.elapsed());
            if self.server.with(may_land) {
                self.execute().await;
            }
        }
    }

    async fn answer(&self, reply: Reply, answer: Answer) {
        sleep(self.server.with(|state| state.latency(state.settings.answer_latency))).await;
        self.server.with(|state| {
            let entry = &mut state.log[self.id];
            entry.answered = Some(answer.code());
            // If the client has given up, the answer is lost.
            if !reply.is_closed() {
                let body = if let Answer::Json(_, body) = &answer { Some(body) } else { None };
                let former = former_pages(&state.lists, &entry.request);
                state.observers.answered(entry, body, former, state.clock.elapsed());
            }
        });
        drop(reply.send(Ok(answer.into_response(&self.server, false))));
    }

    /// Executes the request. Without a quorum, a read or a write waits until there is one again, or gets a timeout at its deadline. A watch
    /// does not wait: the API server serves it from its cache.
    async fn execute(&self) -> Answer {
        let waits = self.server.with(|state| {
            let (action, pending) = state.quorum.0.as_mut().filter(|_| self.request.verb != Verb::Watch)?;
            state.coverage.hit(action);
            let (sender, answer) = oneshot::channel();
            pending.push(Pending { id: self.id, request: Arc::clone(&self.request), answer: sender });
            Some(answer)
        });
        let Some(answer) = waits else { return self.server.execute(self.id, &self.request) };
        if let Ok(Ok(answer)) = timeout_at(self.deadline, answer).await {
            return answer;
        }
        sleep_until(self.deadline).await;
        Status::timeout().into()
    }
}

impl ApiServer {
    /// Accepts a request and waits for its answer. Waits forever if a fault suppresses the answer.
    pub async fn accept(&self, request: Arc<ApiRequest>) -> Result<Response<AnswerBody>, Cut> {
        let (sender, receiver) = oneshot::channel();
        let (id, rule) = self.with(|state| {
            let chooses = |rule: &&Arc<Rule>| rule.requests.chooses(&request, rule.hits.load(Ordering::Relaxed));
            let rule = state.faults.iter().find(chooses).cloned();
            if let Some(rule) = &rule {
                rule.hits.fetch_add(1, Ordering::Relaxed);
                state.coverage.hit(rule.action);
                state.observers.events.hit(&request);
            }
            let (id, at) = (state.log.len(), state.clock.elapsed());
            state.observers.arrived(&request, at);
            let (request, fault) = (Arc::clone(&request), rule.as_ref().map(|rule| rule.fault.clone()));
            state.log.push(LoggedRequest { at, request, fault, executed_at: None, outcome: None, answered: None });
            (id, rule)
        });
        let server = self.clone();
        tokio::spawn(async move {
            if let Some(Fault::ArriveLate(delay)) = rule.as_ref().map(|rule| &rule.fault) {
                sleep(*delay).await;
            }
            let deadline = Instant::now() + request.timeout().unwrap_or(TIME_LIMIT).min(TIME_LIMIT);
            Handler { server, request, id, deadline }.handle(rule, sender).await;
        });
        receiver.await.expect("the handler answers, or never ends")
    }

    pub fn execute(&self, id: usize, request: &ApiRequest) -> Answer {
        self.with(|state| {
            let answer = state.execute(request).unwrap_or_else(|rejection| rejection);
            let entry = &mut state.log[id];
            (entry.executed_at, entry.outcome) = (Some(state.clock.elapsed()), Some(answer.code()));
            state.observers.executed(entry, state.resource_version);
            state.changes.send_replace(());
            answer
        })
    }
}

impl State {
    fn execute(&mut self, request: &ApiRequest) -> Result<Answer, Answer> {
        // A runaway operator would use up the memory of the machine.
        if self.observers.bound.exceeded > RUNAWAY {
            return Err(Status::of_code(503).into());
        }
        if self.settings.unserved.contains(request.kind.plural) {
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
